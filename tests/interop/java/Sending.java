import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** DefaultMQProducer: one command sends a list of messages in one of its four modes. */
final class Sending {
    private Sending() {
    }

    /**
     * Command: namesrv, group, topic, mode (sync, async, oneway, batch), messages
     * [{body or size, tags, keys, properties, delayLevel, delaySec, delayMs, deliverMs}]. Answer:
     * one result per message, for a batch one in all, none for oneway.
     */
    static Object run(JSONObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group"),
            Release.signer(command));
        Peer.configure(producer, command, "send");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            List<Message> messages = new ArrayList<>();
            JSONArray wanted = command.getJSONArray("messages");
            for (int i = 0; i < wanted.size(); i++) {
                messages.add(message(command.getString("topic"), wanted.getJSONObject(i)));
            }
            List<Object> results = new ArrayList<>();
            for (SendResult result : send(producer, command.getString("mode"), messages)) {
                results.add(view(result));
            }
            return results;
        } finally {
            producer.shutdown();
        }
    }

    private static List<SendResult> send(DefaultMQProducer producer, String mode,
        List<Message> messages) throws Exception {
        List<SendResult> results = new ArrayList<>();
        switch (mode) {
            case "sync":
                for (Message message : messages) {
                    results.add(producer.send(message));
                }
                return results;
            case "async":
                List<CompletableFuture<SendResult>> pending = new ArrayList<>();
                for (Message message : messages) {
                    pending.add(sendAsync(producer, message));
                }
                for (CompletableFuture<SendResult> one : pending) {
                    results.add(one.get(15, TimeUnit.SECONDS));
                }
                return results;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                return results;
            case "batch":
                return Collections.singletonList(producer.send(messages));
            default:
                throw new IllegalArgumentException("no such mode: " + mode);
        }
    }

    private static CompletableFuture<SendResult> sendAsync(DefaultMQProducer producer,
        Message message) throws Exception {
        CompletableFuture<SendResult> future = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                future.completeExceptionally(failure);
            }
        });
        return future;
    }

    private static Message message(String topic, JSONObject wanted) {
        Message message = new Message(topic, body(wanted));
        if (wanted.getString("tags") != null) {
            message.setTags(wanted.getString("tags"));
        }
        if (wanted.getString("keys") != null) {
            message.setKeys(wanted.getString("keys"));
        }
        if (wanted.getJSONObject("properties") != null) {
            for (Map.Entry<String, Object> one : wanted.getJSONObject("properties").entrySet()) {
                message.putUserProperty(one.getKey(), (String) one.getValue());
            }
        }
        if (wanted.getInteger("delayLevel") != null) {
            message.setDelayTimeLevel(wanted.getIntValue("delayLevel"));
        }
        Release.deliverLater(message, wanted);
        return message;
    }

    private static byte[] body(JSONObject wanted) {
        String text = wanted.getString("body");
        if (wanted.getInteger("size") == null) {
            return text.getBytes(StandardCharsets.UTF_8);
        }
        StringBuilder repeated = new StringBuilder();
        while (repeated.length() < wanted.getIntValue("size")) {
            repeated.append(text);
        }
        repeated.setLength(wanted.getIntValue("size"));
        return repeated.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static JSONObject view(SendResult result) {
        JSONObject view = new JSONObject(true);
        view.put("status", result.getSendStatus().name());
        view.put("msgId", result.getMsgId());
        view.put("offsetMsgId", result.getOffsetMsgId());
        view.put("brokerName", result.getMessageQueue().getBrokerName());
        view.put("queueId", result.getMessageQueue().getQueueId());
        view.put("queueOffset", result.getQueueOffset());
        view.put("recallHandle", Release.recallHandle(result));
        return view;
    }
}
