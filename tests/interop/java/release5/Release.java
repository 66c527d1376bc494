import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What only clients of release 5 do, or spell so. Its twin for release 4 is in ../release4. */
final class Release {
    private Release() {
    }

    /** The commands that release 4 does not have. */
    static Object run(String name, JSONObject command) throws Exception {
        switch (name) {
            case "recall":
                return recall(command);
            case "sql-filter":
                return Filtering.run(command);
            case "pop-start":
                return Popping.start(command);
            case "pop-collect":
                return Popping.collect(command);
            case "pop-stop":
                return Popping.stop(command);
            case "signed":
                return Signing.run(command);
            case "mqadmin":
                return Admin.run(command);
            default:
                throw new IllegalArgumentException("no such command: " + name);
        }
    }

    /** Command: optional accessKey, secretKey. */
    static RPCHook signer(JSONObject command) {
        String name = command.getString("accessKey");
        return name == null ? null
            : new AclClientRPCHook(new SessionCredentials(name, command.getString("secretKey")));
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static void heartbeatV2(DefaultMQPushConsumer consumer) {
        consumer.setUseHeartbeatV2(true);
    }

    /** Message members delaySec, delayMs, deliverMs. */
    static void deliverLater(Message message, JSONObject wanted) {
        if (wanted.getLong("delaySec") != null) {
            message.setDelayTimeSec(wanted.getLongValue("delaySec"));
        }
        if (wanted.getLong("delayMs") != null) {
            message.setDelayTimeMs(wanted.getLongValue("delayMs"));
        }
        if (wanted.getLong("deliverMs") != null) {
            message.setDeliverTimeMs(wanted.getLongValue("deliverMs"));
        }
    }

    static void commit(DefaultLitePullConsumer consumer) {
        consumer.commit();
    }

    static String recallHandle(SendResult result) {
        return result.getRecallHandle();
    }

    /** Command: namesrv, group, topic, handle. Answer: the unique id of the message taken back. */
    private static Object recall(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group"));
        Peer.configure(producer, command, "recall");
        producer.start();
        try {
            return producer.recallMessage(
                command.getString("topic"), command.getString("handle"));
        } finally {
            producer.shutdown();
        }
    }
}
