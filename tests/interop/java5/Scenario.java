import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.*;
import org.apache.rocketmq.client.apis.consumer.*;
import org.apache.rocketmq.client.apis.message.*;
import org.apache.rocketmq.client.apis.producer.*;

/**
 * What the official client for Java does with a proxy: `Scenario ENDPOINT SSL PREFIX NAME...`.
 *
 * The scenarios run side by side. Each fact is one line, `> NAME: FACT`. Topics and groups begin with the prefix.
 */
public class Scenario {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration config;
    static String prefix;

    final String name;

    Scenario(String name) {
        this.name = name;
    }

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(args[0])
            .enableSsl(Boolean.parseBoolean(args[1]))
            .setRequestTimeout(Duration.ofSeconds(5));
        String user = System.getenv("ACCESS_KEY");
        if (user != null) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(user, System.getenv("SECRET_KEY")));
        }
        config = builder.build();
        prefix = args[2];
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> running = new ArrayList<>();
        for (String each : Arrays.asList(args).subList(3, args.length)) {
            running.add(threads.submit(() -> new Scenario(each).run()));
        }
        for (Future<?> each : running) each.get();
        System.exit(0);
    }

    Void run() throws Exception {
        switch (name) {
            case "normal": normal(); break;
            case "fifo": fifo(); break;
            case "delay": delay(); break;
            case "transaction": transaction(); break;
            case "push": push(); break;
            case "order": order(); break;
            case "steady": steady(); break;
            case "signed-send": signed(this::signedSend); break;
            case "signed-receive": signed(this::signedReceive); break;
            case "signed-push": signed(this::signedPush); break;
            default: throw new IllegalArgumentException(name);
        }
        return null;
    }

    void say(String text) {
        synchronized (System.out) {
            System.out.println("> " + name + ": " + text);
            System.out.flush();
        }
    }

    String topic() {
        return prefix + name;
    }

    MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic()).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody()).toString();
    }

    static String bodies(Collection<MessageView> messages) {
        return messages.stream().map(Scenario::body).sorted().collect(Collectors.joining(" "));
    }

    Producer producer(TransactionChecker checker) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(config).setTopics(topic());
        return (checker == null ? builder : builder.setTransactionChecker(checker)).build();
    }

    /** A simple consumer of a group that has begun: it gets what is sent from now on. */
    SimpleConsumer simple(String group, FilterExpression filter) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup(prefix + group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic(), filter))
            .build();
        consumer.receive(1, Duration.ofSeconds(10));
        return consumer;
    }

    PushConsumer pushing(MessageListener listener) throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(config)
            .setConsumerGroup(topic())
            .setSubscriptionExpressions(Map.of(topic(), FilterExpression.SUB_ALL))
            .setMessageListener(listener)
            .build();
        Thread.sleep(3000);  // its first receives have begun
        return consumer;
    }

    static List<MessageView> receive(SimpleConsumer consumer, int count, int seconds) throws Exception {
        List<MessageView> got = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (got.size() < count && System.nanoTime() < end) {
            got.addAll(consumer.receive(16, Duration.ofSeconds(20)));
        }
        return got;
    }

    /** Filters by tag and by SQL; a nack, a nack of what came back, an acknowledgement of its new handle. */
    void normal() throws Exception {
        SimpleConsumer tags = simple("tags", new FilterExpression("a || b", FilterExpressionType.TAG));
        SimpleConsumer sql = simple("sql", new FilterExpression("n > 3", FilterExpressionType.SQL92));
        Producer producer = producer(null);
        for (int i = 0; i < 6; i++) {
            SendReceipt receipt = producer.send(message("m" + i).setTag("abc".substring(i % 3, i % 3 + 1))
                .setKeys("k" + i).addProperty("n", "" + i).build());
            if (receipt.getMessageId().toString().length() != 34) say("id " + receipt.getMessageId());
        }
        List<MessageView> got = receive(tags, 4, 30);
        got.stream().map(m -> body(m) + " " + m.getTag().get() + " " + String.join(",", m.getKeys()) + " "
            + m.getProperties().get("n") + " " + m.getDeliveryAttempt()).sorted().forEach(this::say);
        for (MessageView m : got.subList(1, got.size())) tags.ack(m);
        long begun = System.nanoTime();
        tags.changeInvisibleDuration(got.get(0), Duration.ofSeconds(1));
        List<MessageView> again = receive(tags, 1, 30);
        say("back after " + (System.nanoTime() - begun) / 1_000_000 + " ms");
        say("again " + body(again.get(0)).equals(body(got.get(0))) + " " + again.get(0).getDeliveryAttempt());
        tags.changeInvisibleDuration(again.get(0), Duration.ofSeconds(10));
        tags.ack(again.get(0));
        say("sql " + bodies(receive(sql, 2, 30)));
        say("left " + receive(tags, 1, 12).size());
    }

    /** Two message groups, in order. */
    void fifo() throws Exception {
        SimpleConsumer consumer = simple("fifo", FilterExpression.SUB_ALL);
        Producer producer = producer(null);
        for (int i = 0; i < 10; i++) {
            producer.send(message("f" + i).setMessageGroup("group" + i % 2).build());
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
        bodies.forEach((group, seen) -> say(group + " " + String.join(" ", seen)));
    }

    /** A delayed message, and one that is recalled. */
    void delay() throws Exception {
        SimpleConsumer consumer = simple("delay", FilterExpression.SUB_ALL);
        Producer producer = producer(null);
        long due = System.currentTimeMillis() + 3000;
        producer.send(message("later").setDeliveryTimestamp(due).build());
        SendReceipt receipt = producer.send(message("never").setDeliveryTimestamp(due + 3000).build());
        producer.recallMessage(topic(), receipt.getRecallHandle());
        List<MessageView> got = receive(consumer, 2, 15);
        say("delivered " + bodies(got) + ", early " + got.stream().anyMatch(m -> m.getDeliveryTimestamp().get() > now()));
        for (MessageView m : got) consumer.ack(m);
    }

    static long now() {
        return System.currentTimeMillis();
    }

    /** Commit, rollback, and a transaction that the server asks about. */
    void transaction() throws Exception {
        SimpleConsumer consumer = simple("transaction", FilterExpression.SUB_ALL);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        Producer producer = producer(m -> {
            asked.add(body(m));
            return body(m).equals("orphan") ? TransactionResolution.COMMIT : TransactionResolution.UNKNOWN;
        });
        for (String what : List.of("commit", "rollback", "orphan")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(what).build(), transaction);
            if (what.equals("commit")) transaction.commit();
            if (what.equals("rollback")) transaction.rollback();
        }
        List<MessageView> got = receive(consumer, 2, 60);
        say("committed " + bodies(got));
        for (MessageView m : got) consumer.ack(m);
        say("asked " + asked.contains("orphan"));
    }

    /** A push consumer that fails once on one message, and always on another. */
    void push() throws Exception {
        Map<String, Integer> attempts = new ConcurrentSkipListMap<>();
        PushConsumer consumer = pushing(m -> {
            attempts.merge(body(m), 1, Integer::sum);
            boolean fails = body(m).equals("p1") && m.getDeliveryAttempt() < 2 || body(m).equals("p2");
            return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        Producer producer = producer(null);
        for (int i = 0; i < 7; i++) producer.send(message("p" + i).build());
        settle(() -> attempts.values().stream().mapToInt(n -> n).sum(), 10);
        attempts.forEach((body, count) -> say(body + " " + count));
        consumer.close();
    }

    /** A push consumer in order, which always fails on the second message of three. */
    void order() throws Exception {
        List<String> seen = new CopyOnWriteArrayList<>();
        PushConsumer consumer = pushing(m -> {
            seen.add(body(m));
            return body(m).equals("o1") ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        Producer producer = producer(null);
        for (int i = 0; i < 3; i++) producer.send(message("o" + i).setMessageGroup("g").build());
        settle(seen::size, 5);
        say(String.join(" ", seen));
        consumer.close();
    }

    /** Wait for so many deliveries; then for what the proxy does later, and for one too many. */
    static void settle(Callable<Integer> count, int wanted) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(90); System.nanoTime() < end;) {
            if (count.call() >= wanted) break;
            Thread.sleep(100);
        }
        Thread.sleep(1000 * Long.parseLong(System.getenv("SETTLE_SECONDS")));
    }

    /** Sends and receives without end, a line each: what is sent is retried by the client only. */
    void steady() throws Exception {
        Producer producer = producer(null);
        SimpleConsumer consumer = simple("steady", FilterExpression.SUB_ALL);
        new Thread(() -> {
            for (int i = 0; ; i++) {
                try {
                    producer.send(message("" + i).build());
                    say("sent " + i);
                } catch (Throwable error) {
                    pause();
                }
            }
        }).start();
        while (true) {
            try {
                for (MessageView m : consumer.receive(32, Duration.ofSeconds(20))) {
                    say("got " + body(m));
                    consumer.ack(m);
                }
            } catch (Throwable error) {
                pause();
            }
        }
    }

    /** What becomes of the user of the environment, or of nobody: what it did, or why it could not. */
    void signed(Callable<String> attempt) {
        try {
            say(attempt.call());
        } catch (Throwable error) {
            StringBuilder text = new StringBuilder("failed");
            for (Throwable each = error; each != null; each = each.getCause()) {
                text.append(" / ").append(String.valueOf(each.getMessage()).replace('\n', ' '));
            }
            say(text.toString());
        }
    }

    String signedSend() throws Exception {
        producer(null).send(message("signed").build());
        return "sent";
    }

    String signedReceive() throws Exception {
        simple("signed-receive", FilterExpression.SUB_ALL);
        return "received";
    }

    String signedPush() throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        pushing(view -> {
            arrived.countDown();
            return ConsumeResult.SUCCESS;
        });
        signedSend();
        return arrived.await(30, TimeUnit.SECONDS) ? "pushed" : "failed / silence";
    }

    static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
