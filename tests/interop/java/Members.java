import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Single push consumers that join and leave their group one by one. */
final class Members {
    private static final Map<String, Members> RUNNING = new ConcurrentHashMap<>();

    private final String topic;
    private final DefaultMQPushConsumer consumer;
    private final BlockingQueue<JSONObject> arrived = new LinkedBlockingQueue<>();
    private OutputStream journal = OutputStream.nullOutputStream();

    private Members(String topic, DefaultMQPushConsumer consumer) {
        this.topic = topic;
        this.consumer = consumer;
    }

    /**
     * Command: namesrv, group, topic, member (its name), expression or sql, orderly, broadcast,
     * heartbeatV2, pauseMillis (that each message takes), journal (a file that names the queue and
     * the offset of each message as soon as it is consumed). Returns when the consumer has started.
     */
    static Object start(JSONObject command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Peer.configure(consumer, command, command.getString("member") + "n");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(500);
        if (command.getBooleanValue("heartbeatV2")) {
            Release.heartbeatV2(consumer);
        }
        if (command.getBooleanValue("broadcast")) {
            Release.broadcast(consumer);
        }
        Members member = new Members(command.getString("topic"), consumer);
        if (command.getString("sql") != null) {
            consumer.subscribe(member.topic, MessageSelector.bySql(command.getString("sql")));
        } else {
            consumer.subscribe(member.topic, command.getString("expression"));
        }
        if (command.getString("journal") != null) {
            member.journal = new FileOutputStream(command.getString("journal"));
        }
        member.listen(command.getBooleanValue("orderly"), command.getLongValue("pauseMillis"));
        try {
            consumer.start();
        } catch (Exception failure) {
            consumer.shutdown();
            throw failure;
        }
        RUNNING.put(command.getString("member"), member);
        return null;
    }

    private void listen(boolean orderly, long pauseMillis) {
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                consumed(messages, pauseMillis);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                consumed(messages, pauseMillis);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
    }

    private void consumed(List<MessageExt> messages, long pauseMillis) {
        for (MessageExt message : messages) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(pauseMillis));
            String line = message.getQueueId() + " " + message.getQueueOffset() + "\n";
            try {
                journal.write(line.getBytes(StandardCharsets.US_ASCII)); // One call, one line.
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
            arrived.add(MessageView.of(message));
        }
    }

    /** Command: member, count, timeoutMillis. Waits until it has so many queues; answer: their ids. */
    static Object awaitQueues(JSONObject command) {
        Members member = RUNNING.get(command.getString("member"));
        long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
        while (true) {
            List<Integer> queues = new ArrayList<>();
            for (MessageQueue queue : member.consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(member.topic)) {
                    queues.add(queue.getQueueId());
                }
            }
            Collections.sort(queues);
            if (queues.size() == command.getIntValue("count")) {
                return queues;
            }
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("it has the queues " + queues);
            }
            LockSupport.parkNanos(20_000_000L); // The client offers no event for a rebalance.
        }
    }

    /** Command: member, count, timeoutMillis. Answer: up to count messages in their order. */
    static Object collect(JSONObject command) throws Exception {
        Members member = RUNNING.get(command.getString("member"));
        JSONArray messages = new JSONArray();
        long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
        while (messages.size() < command.getIntValue("count")) {
            long left = Math.max(0, end - System.currentTimeMillis());
            JSONObject message = member.arrived.poll(left, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            messages.add(message);
        }
        return messages;
    }

    /** Command: member. It stores its offsets and leaves. */
    static Object stop(JSONObject command) {
        RUNNING.remove(command.getString("member")).consumer.shutdown();
        return null;
    }
}
