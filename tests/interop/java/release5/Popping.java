import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
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

/** Push consumers that let the broker share out the queues, and pop where it says so. */
final class Popping {
    private static final Map<String, Popping> RUNNING = new ConcurrentHashMap<>();

    private final List<DefaultMQPushConsumer> members = new ArrayList<>();
    private final BlockingQueue<JSONObject> attempts = new LinkedBlockingQueue<>();

    /**
     * Command: namesrv, group, topic, members, maxReconsumeTimes. A message whose user property
     * "succeeds" is n is consumed with its n-th attempt, any other one with its first.
     */
    static Object start(JSONObject command) throws Exception {
        Popping group = new Popping();
        RUNNING.put(command.getString("group"), group);
        for (int member = 0; member < Math.max(1, command.getIntValue("members")); member++) {
            group.add(command, member);
        }
        return true;
    }

    private void add(JSONObject command, int member) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Peer.configure(consumer, command, "pop" + member + "n");
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsumeTimes"));
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setPopInvisibleTime(10_000);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            JSONObject view = MessageView.of(message);
            view.put("at", System.currentTimeMillis());
            view.put("member", member);
            view.put("popped", message.getProperty("POP_CK") != null);
            attempts.add(view);
            String succeeds = message.getUserProperty("succeeds");
            return succeeds == null || message.getReconsumeTimes() + 1 >= Integer.parseInt(succeeds)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        members.add(consumer);
    }

    /** Command: group, count, timeoutMillis. Answer: up to count attempts, with their time "at". */
    static Object collect(JSONObject command) throws Exception {
        Popping group = RUNNING.get(command.getString("group"));
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
        for (DefaultMQPushConsumer member : RUNNING.remove(command.getString("group")).members) {
            member.shutdown();
        }
        return true;
    }
}
