import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Groups of DefaultMQPushConsumer in cluster mode that stay alive between commands. */
final class Pushing {
    private static final Map<String, Pushing> RUNNING = new ConcurrentHashMap<>();

    private final List<DefaultMQPushConsumer> members = new ArrayList<>();
    private final BlockingQueue<JSONObject> arrived = new LinkedBlockingQueue<>();
    private final String topic;

    private Pushing(String topic) {
        this.topic = topic;
    }

    /**
     * Command: namesrv, group, topic, expression, members (default 1), queues (how many queues the
     * topic has). Returns when the members share all queues without overlap: {assigned: [[queueId
     * of member 0], ...]}.
     */
    static Object start(JSONObject command) throws Exception {
        Pushing group = new Pushing(command.getString("topic"));
        RUNNING.put(command.getString("group"), group);
        int members = Math.max(1, command.getIntValue("members"));
        for (int member = 0; member < members; member++) {
            group.add(command, member);
        }
        return group.awaitAssignment(command.getIntValue("queues"));
    }

    private void add(JSONObject command, int member) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.getString("group"));
        Peer.configure(consumer, command, "push" + member + "n");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, command.getString("expression"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                JSONObject view = MessageView.of(message);
                view.put("member", member);
                arrived.add(view);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        members.add(consumer);
    }

    private Object awaitAssignment(int queues) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (System.nanoTime() < end) {
            List<List<Integer>> assigned = new ArrayList<>();
            Set<String> distinct = new HashSet<>();
            int total = 0;
            for (DefaultMQPushConsumer member : members) {
                List<Integer> own = new ArrayList<>();
                for (MessageQueue queue : member.getDefaultMQPushConsumerImpl()
                    .getRebalanceImpl().getProcessQueueTable().keySet()) {
                    if (queue.getTopic().equals(topic)) {
                        own.add(queue.getQueueId());
                        distinct.add(queue.getBrokerName() + queue.getQueueId());
                        total++;
                    }
                }
                Collections.sort(own);
                assigned.add(own);
            }
            // Until it knows of the others, a member has more than its share.
            boolean fair = assigned.stream().allMatch(own -> own.size() >= queues / members.size());
            if (fair && total == queues && distinct.size() == queues) {
                return assigned;
            }
            LockSupport.parkNanos(20_000_000L); // The client offers no event for a rebalance.
        }
        throw new IllegalStateException("the group did not share its queues within 60 s");
    }

    /** Command: group, count, timeoutMillis. Answer: up to count messages with their member. */
    static Object collect(JSONObject command) throws Exception {
        Pushing group = RUNNING.get(command.getString("group"));
        JSONArray messages = new JSONArray();
        long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
        while (messages.size() < command.getIntValue("count")) {
            long left = Math.max(0, end - System.currentTimeMillis());
            JSONObject message = group.arrived.poll(left, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            messages.add(message);
        }
        return messages;
    }

    /** Command: group. The members store their offsets now, not only every 5 s. */
    static Object commit(JSONObject command) {
        Pushing group = RUNNING.get(command.getString("group"));
        for (DefaultMQPushConsumer member : group.members) {
            member.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        }
        return group.members.size();
    }

    /** Command: group. Stops the members, which store their offsets. */
    static Object stop(JSONObject command) {
        Pushing group = RUNNING.remove(command.getString("group"));
        for (DefaultMQPushConsumer member : group.members) {
            member.shutdown();
        }
        return group.members.size();
    }
}
