import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.RPCHook;

/** What clients of release 4 spell otherwise than those of release 5, or do not have. */
final class Release {
    private Release() {
    }

    static Object run(String name, JSONObject command) {
        throw new IllegalArgumentException("no such command in release 4: " + name);
    }

    static RPCHook signer(JSONObject command) {
        return null; // the tests of users have clients of release 5
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    static void heartbeatV2(DefaultMQPushConsumer consumer) {
        throw new IllegalArgumentException("release 4 has one kind of heartbeat");
    }

    static void deliverLater(Message message, JSONObject wanted) {
        for (String name : new String[] {"delaySec", "delayMs", "deliverMs"}) {
            if (wanted.containsKey(name)) {
                throw new IllegalArgumentException("release 4 has delay levels only: " + name);
            }
        }
    }

    static void commit(DefaultLitePullConsumer consumer) {
        consumer.commitSync();
    }

    static String recallHandle(SendResult result) {
        return null;
    }
}
