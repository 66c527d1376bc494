import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The two pull consumers of the official client. */
final class Pulling {
    private Pulling() {
    }

    /**
     * DefaultMQPullConsumer over whole queues, from minOffset to maxOffset.
     *
     * <p>Command: namesrv, group, and either topics [name] (all queues the route names) or queues
     * [{topic, brokerName, queueId}]; expression (default *). Answer: {messages, queues} where
     * queues says min and max offset of each queue.
     */
    @SuppressWarnings("deprecation")
    static Object pull(JSONObject command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.getString("group"),
            Release.signer(command));
        Peer.configure(consumer, command, "pull");
        consumer.start();
        try {
            String expression = command.getString("expression");
            JSONArray messages = new JSONArray();
            JSONArray offsets = new JSONArray();
            for (MessageQueue queue : queues(consumer, command)) {
                long min = consumer.minOffset(queue);
                long max = consumer.maxOffset(queue);
                JSONObject row = new JSONObject(true);
                row.put("topic", queue.getTopic());
                row.put("brokerName", queue.getBrokerName());
                row.put("queueId", queue.getQueueId());
                row.put("min", min);
                row.put("max", max);
                offsets.add(row);
                String wanted = expression == null ? "*" : expression;
                readQueue(consumer, queue, wanted, min, max, messages);
            }
            JSONObject answer = new JSONObject(true);
            answer.put("messages", messages);
            answer.put("queues", offsets);
            return answer;
        } finally {
            consumer.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    private static void readQueue(DefaultMQPullConsumer consumer, MessageQueue queue,
        String expression, long min, long max, JSONArray messages) throws Exception {
        for (long at = min; at < max; ) {
            PullResult result = consumer.pull(queue, expression, at, 32);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    messages.add(MessageView.of(queue, message));
                }
            } else if (result.getPullStatus() != PullStatus.NO_MATCHED_MSG) {
                throw new IllegalStateException(
                    queue + " at " + at + " of " + max + ": " + result.getPullStatus());
            }
            if (result.getNextBeginOffset() <= at) {
                throw new IllegalStateException(queue + " does not move on from " + at);
            }
            at = result.getNextBeginOffset();
        }
    }

    @SuppressWarnings("deprecation")
    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, JSONObject command)
        throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        JSONArray topics = command.getJSONArray("topics");
        for (int i = 0; topics != null && i < topics.size(); i++) {
            queues.addAll(consumer.fetchSubscribeMessageQueues(topics.getString(i)));
        }
        JSONArray named = command.getJSONArray("queues");
        for (int i = 0; named != null && i < named.size(); i++) {
            queues.add(named.getObject(i, MessageQueue.class));
        }
        return queues;
    }

    /**
     * DefaultLitePullConsumer subscribed from the first offset: polls until count messages are
     * here, commits and stops. Command: namesrv, group, topic, expression, count, timeoutMillis.
     */
    static Object litePull(JSONObject command) throws Exception {
        DefaultLitePullConsumer consumer =
            new DefaultLitePullConsumer(command.getString("group"));
        Peer.configure(consumer, command, "lite");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), command.getString("expression"));
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            JSONArray messages = new JSONArray();
            long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
            while (messages.size() < command.getIntValue("count")
                && System.currentTimeMillis() < end) {
                for (MessageExt message : consumer.poll(200)) {
                    messages.add(MessageView.of(message));
                }
            }
            Release.commit(consumer);
            return messages;
        } finally {
            consumer.shutdown();
        }
    }
}
