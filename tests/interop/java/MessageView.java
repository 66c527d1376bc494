import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A received message as JSON, with the field names of the golden lists. */
final class MessageView {
    private MessageView() {
    }

    static JSONObject of(MessageQueue queue, MessageExt message) {
        JSONObject view = of(message);
        view.put("storedTopic", queue.getTopic());
        return view;
    }

    static JSONObject of(MessageExt message) {
        JSONObject view = new JSONObject(true);
        view.put("topic", message.getTopic());
        view.put("queueId", message.getQueueId());
        view.put("queueOffset", message.getQueueOffset());
        view.put("physicalOffset", message.getCommitLogOffset());
        view.put("storeSize", message.getStoreSize());
        view.put("flag", message.getFlag());
        view.put("sysFlag", message.getSysFlag());
        view.put("bornTimestamp", message.getBornTimestamp());
        view.put("storeTimestamp", message.getStoreTimestamp());
        view.put("bornHost", host((InetSocketAddress) message.getBornHost()));
        view.put("storeHost", host((InetSocketAddress) message.getStoreHost()));
        view.put("bodyCRC", message.getBodyCRC());
        view.put("reconsumeTimes", message.getReconsumeTimes());
        view.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        view.put("tags", message.getTags());
        view.put("keys", message.getKeys());
        view.put("properties", new TreeMap<>(message.getProperties()));
        view.put("bodyLength", message.getBody().length);
        view.put("bodySha256", sha256(message.getBody()));
        if (message.getBody().length <= 4096) {
            view.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        }
        view.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt) { // Not what a broker sends unasked.
            view.put("offsetMsgId", ((MessageClientExt) message).getOffsetMsgId());
        }
        return view;
    }

    private static String host(InetSocketAddress address) {
        return address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    private static String sha256(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte one : MessageDigest.getInstance("SHA-256").digest(body)) {
                hex.append(String.format("%02x", one));
            }
            return hex.toString();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
