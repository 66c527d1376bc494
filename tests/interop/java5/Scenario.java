import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/** What the official client for Java does with a proxy: `Scenario ENDPOINT SSL NAME`; one fact a line. */
public class Scenario {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration config;

    static synchronized void say(String text) {
        System.out.println("> " + text);
        System.out.flush();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    static Producer producer(TransactionChecker checker, String... topics) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics(topics);
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    static SimpleConsumer simple(String topic, String group, FilterExpression filter) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, filter))
            .build();
    }

    static List<MessageView> receive(SimpleConsumer consumer, int count, int seconds) throws Exception {
        List<MessageView> got = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (got.size() < count && System.nanoTime() < end) {
            got.addAll(consumer.receive(16, Duration.ofSeconds(20)));
        }
        return got;
    }

    public static void main(String[] args) throws Exception {
        config = ClientConfiguration.newBuilder()
            .setEndpoints(args[0])
            .enableSsl(Boolean.parseBoolean(args[1]))
            .setRequestTimeout(Duration.ofSeconds(5))
            .build();
        switch (args[2]) {
            case "normal": normal(); break;
            case "fifo": fifo(); break;
            case "delay": delay(); break;
            case "transaction": transaction(); break;
            case "push": push(); break;
            default: throw new IllegalArgumentException(args[2]);
        }
        System.exit(0);
    }

    /** Sends with tags and properties; a filter by tag, one by SQL; a nack, then an acknowledgement. */
    static void normal() throws Exception {
        SimpleConsumer tags = simple("JavaNormal", "java-tags", new FilterExpression("a || b", FilterExpressionType.TAG));
        SimpleConsumer sql = simple("JavaNormal", "java-sql", new FilterExpression("n > 3", FilterExpressionType.SQL92));
        tags.receive(1, Duration.ofSeconds(10));  // a new group begins at the end
        sql.receive(1, Duration.ofSeconds(10));
        Producer producer = producer(null, "JavaNormal");
        for (int i = 0; i < 6; i++) {
            SendReceipt receipt = producer.send(message("JavaNormal", "m" + i).setTag("abc".substring(i % 3, i % 3 + 1))
                .setKeys("k" + i).addProperty("n", "" + i).build());
            say("sent " + receipt.getMessageId().toString().length());
        }
        List<MessageView> got = receive(tags, 4, 30);
        got.stream().map(m -> body(m) + " " + m.getTag().get() + " " + m.getKeys() + " " + m.getProperties()
            + " " + m.getDeliveryAttempt()).sorted().forEach(text -> say("tags " + text));
        for (MessageView m : got.subList(1, got.size())) tags.ack(m);
        tags.changeInvisibleDuration(got.get(0), Duration.ofSeconds(1));
        List<MessageView> again = receive(tags, 1, 30);
        say("again " + again.size() + " " + body(again.get(0)).equals(body(got.get(0))) + " "
            + again.get(0).getDeliveryAttempt());
        tags.ack(again.get(0));
        receive(sql, 2, 30).stream().map(m -> body(m)).sorted().forEach(text -> say("sql " + text));
    }

    /** Two message groups, in order. */
    static void fifo() throws Exception {
        SimpleConsumer consumer = simple("JavaFifo", "java-fifo", FilterExpression.SUB_ALL);
        consumer.receive(1, Duration.ofSeconds(10));
        Producer producer = producer(null, "JavaFifo");
        for (int i = 0; i < 10; i++) {
            producer.send(message("JavaFifo", "f" + i).setMessageGroup("group" + i % 2).build());
        }
        Map<String, List<String>> bodies = new TreeMap<>();
        int count = 0;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (count < 10 && System.nanoTime() < end) {
            for (MessageView m : consumer.receive(16, Duration.ofSeconds(20))) {
                bodies.computeIfAbsent(m.getMessageGroup().get(), g -> new ArrayList<>()).add(body(m));
                consumer.ack(m);
                count++;
            }
        }
        say("fifo " + bodies);
    }

    /** A delayed message, and one that is recalled. */
    static void delay() throws Exception {
        SimpleConsumer consumer = simple("JavaDelay", "java-delay", FilterExpression.SUB_ALL);
        consumer.receive(1, Duration.ofSeconds(10));
        Producer producer = producer(null, "JavaDelay");
        producer.send(message("JavaDelay", "later").setDeliveryTimestamp(System.currentTimeMillis() + 3000).build());
        SendReceipt receipt = producer.send(
            message("JavaDelay", "never").setDeliveryTimestamp(System.currentTimeMillis() + 6000).build());
        say("recalled " + producer.recallMessage("JavaDelay", receipt.getRecallHandle()).getMessageId()
            .equals(receipt.getMessageId()));
        List<MessageView> got = receive(consumer, 2, 15);
        for (MessageView m : got) {
            say("delayed " + body(m) + " " + m.getDeliveryTimestamp().isPresent());
            consumer.ack(m);
        }
    }

    /** Commit, rollback, and a transaction that the server asks about. */
    static void transaction() throws Exception {
        SimpleConsumer consumer = simple("JavaTransaction", "java-transaction", FilterExpression.SUB_ALL);
        consumer.receive(1, Duration.ofSeconds(10));
        Set<String> asked = ConcurrentHashMap.newKeySet();
        Producer producer = producer(m -> {
            asked.add(body(m));
            return body(m).equals("orphan") ? TransactionResolution.COMMIT : TransactionResolution.UNKNOWN;
        }, "JavaTransaction");
        for (String what : List.of("commit", "rollback", "orphan")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("JavaTransaction", what).build(), transaction);
            if (what.equals("commit")) transaction.commit();
            if (what.equals("rollback")) transaction.rollback();
        }
        List<MessageView> got = receive(consumer, 2, 60);
        got.stream().map(m -> body(m)).sorted().forEach(text -> say("transaction " + text));
        for (MessageView m : got) consumer.ack(m);
        say("asked " + asked.contains("orphan"));
    }

    /** A push consumer that fails once on one message, and always on another. */
    static void push() throws Exception {
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        CountDownLatch done = new CountDownLatch(6);
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup("java-push")
            .setSubscriptionExpressions(Map.of("JavaPush", FilterExpression.SUB_ALL))
            .setMessageListener(m -> {
                attempts.merge(body(m), 1, Integer::sum);
                boolean fails = body(m).equals("p1") && m.getDeliveryAttempt() < 2 || body(m).equals("p2");
                if (!fails) done.countDown();
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        Thread.sleep(2000);
        Producer producer = producer(null, "JavaPush");
        for (int i = 0; i < 7; i++) producer.send(message("JavaPush", "p" + i).build());
        boolean all = done.await(60, TimeUnit.SECONDS);
        Thread.sleep(15000);
        say("push " + all + " " + new TreeMap<>(attempts));
        consumer.close();
    }
}
