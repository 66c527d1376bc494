import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers that send messages back until they succeed, or are given up. */
final class Retrying {
    private static final Map<String, Retrying> RUNNING = new ConcurrentHashMap<>();

    private final BlockingQueue<JSONObject> attempts = new LinkedBlockingQueue<>();
    private final DefaultMQPushConsumer consumer;

    /**
     * Command: namesrv, group, topic, delayLevel (of the next attempt), maxReconsumeTimes. A
     * message whose user property "succeeds" is n is consumed with its n-th attempt.
     */
    static Object start(JSONObject command) throws Exception {
        RUNNING.put(command.getString("group"), new Retrying(command));
        return true;
    }

    private Retrying(JSONObject command) throws Exception {
        int delayLevel = command.getIntValue("delayLevel");
        consumer = new DefaultMQPushConsumer(command.getString("group"));
        Peer.configure(consumer, command, "retry");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsumeTimes"));
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setPollNameServerInterval(1_000); // The retry topic comes into being just now.
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            JSONObject view = MessageView.of(message);
            view.put("at", System.currentTimeMillis());
            attempts.add(view);
            context.setDelayLevelWhenNextConsume(delayLevel);
            int wanted = Integer.parseInt(message.getUserProperty("succeeds"));
            return message.getReconsumeTimes() + 1 >= wanted
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    /** Command: group, count, timeoutMillis. Answer: up to count attempts, with their time "at". */
    static Object collect(JSONObject command) throws Exception {
        Retrying group = RUNNING.get(command.getString("group"));
        JSONArray attempts = new JSONArray();
        long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
        while (attempts.size() < command.getIntValue("count")) {
            long left = Math.max(0, end - System.currentTimeMillis());
            JSONObject attempt = group.attempts.poll(left, TimeUnit.MILLISECONDS);
            if (attempt == null) {
                break;
            }
            attempts.add(attempt);
        }
        return attempts;
    }

    /** Command: group. */
    static Object stop(JSONObject command) {
        RUNNING.remove(command.getString("group")).consumer.shutdown();
        return true;
    }
}
