import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional producers that stay alive between commands, so that brokers can ask them. */
final class Transacting {
    private static final Map<String, Transacting> RUNNING = new ConcurrentHashMap<>();

    private final TransactionMQProducer producer;
    private final BlockingQueue<JSONObject> checks = new LinkedBlockingQueue<>();

    private Transacting(JSONObject command) throws Exception {
        producer = new TransactionMQProducer(command.getString("group"));
        Peer.configure(producer, command, "transaction");
        producer.setHeartbeatBrokerInterval(500); // A broker only asks whom it knows.
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.valueOf(message.getUserProperty("local"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.add(MessageView.of(message));
                return LocalTransactionState.valueOf(message.getUserProperty("check"));
            }
        });
        producer.start();
    }

    /** Command: namesrv, group. */
    static Object start(JSONObject command) throws Exception {
        RUNNING.put(command.getString("group"), new Transacting(command));
        return true;
    }

    /**
     * Command: group, topic, messages [{body, tags, keys, local, check, immunity}] where local and
     * check are what the producer says at once and when asked. Answer: one result per message.
     */
    static Object send(JSONObject command) throws Exception {
        Transacting running = RUNNING.get(command.getString("group"));
        JSONArray results = new JSONArray();
        JSONArray wanted = command.getJSONArray("messages");
        for (int i = 0; i < wanted.size(); i++) {
            JSONObject one = wanted.getJSONObject(i);
            Message message = new Message(command.getString("topic"), one.getString("tags"),
                one.getString("keys"), one.getString("body").getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("local", one.getString("local"));
            if (one.getString("check") != null) {
                message.putUserProperty("check", one.getString("check"));
            }
            if (one.getString("immunity") != null) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS",
                    one.getString("immunity"));
            }
            TransactionSendResult result =
                running.producer.sendMessageInTransaction(message, null);
            JSONObject view = new JSONObject(true);
            view.put("status", result.getSendStatus().name());
            view.put("state", result.getLocalTransactionState().name());
            view.put("msgId", result.getMsgId());
            view.put("transactionId", result.getTransactionId());
            view.put("queueId", result.getMessageQueue().getQueueId());
            view.put("queueOffset", result.getQueueOffset());
            results.add(view);
        }
        return results;
    }

    /** Command: group, count, timeoutMillis. Answer: up to count half messages asked about. */
    static Object checks(JSONObject command) throws Exception {
        Transacting running = RUNNING.get(command.getString("group"));
        JSONArray asked = new JSONArray();
        long end = System.currentTimeMillis() + command.getLongValue("timeoutMillis");
        while (asked.size() < command.getIntValue("count")) {
            long left = Math.max(0, end - System.currentTimeMillis());
            JSONObject check = running.checks.poll(left, TimeUnit.MILLISECONDS);
            if (check == null) {
                break;
            }
            asked.add(check);
        }
        return asked;
    }

    /** Command: group. */
    static Object stop(JSONObject command) {
        RUNNING.remove(command.getString("group")).producer.shutdown();
        return true;
    }
}
