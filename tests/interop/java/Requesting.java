import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: a responder and a requester, both for the time of one command. */
final class Requesting {
    private Requesting() {
    }

    /**
     * Command: namesrv, group, topic (exists), bodies, answers (how many of
     * the first requests are answered), timeoutMillis. Answer: for each request the reply, or
     * {failure: text}.
     */
    static Object run(JSONObject command) throws Exception {
        DefaultMQProducer replier = producer(command, "Replier");
        DefaultMQPushConsumer responder = responder(command, replier);
        DefaultMQProducer requester = producer(command, "Requester");
        try {
            List<CompletableFuture<JSONObject>> pending = new ArrayList<>();
            JSONArray bodies = command.getJSONArray("bodies");
            for (int i = 0; i < bodies.size(); i++) {
                Message request = new Message(command.getString("topic"),
                    i < command.getIntValue("answers") ? "answer" : "ignore",
                    bodies.getString(i).getBytes(StandardCharsets.UTF_8));
                pending.add(request(requester, request, command));
            }
            JSONArray replies = new JSONArray();
            for (CompletableFuture<JSONObject> one : pending) {
                replies.add(one.get(90, TimeUnit.SECONDS));
            }
            return replies;
        } finally {
            requester.shutdown();
            responder.shutdown();
            replier.shutdown();
        }
    }

    private static DefaultMQProducer producer(JSONObject command, String suffix)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group") + suffix);
        Peer.configure(producer, command, suffix);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer responder(JSONObject command, DefaultMQProducer replier)
        throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(command.getString("group") + "Responder");
        Peer.configure(consumer, command, "Responder");
        // By default it may begin behind a request that comes while it asks where to begin.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "answer");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                byte[] body = ("reply to " + new String(message.getBody(), StandardCharsets.UTF_8))
                    .getBytes(StandardCharsets.UTF_8);
                try {
                    replier.send(MessageUtil.createReplyMessage(message, body), 10_000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static CompletableFuture<JSONObject> request(DefaultMQProducer requester,
        Message message, JSONObject command) throws Exception {
        CompletableFuture<JSONObject> reply = new CompletableFuture<>();
        // The synchronous request() of 5.3.3 stops waiting as soon as the request is sent.
        requester.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message answer) {
                reply.complete(MessageView.of((MessageExt) answer));
            }

            @Override
            public void onException(Throwable failure) {
                reply.complete(failed(failure));
            }
        }, command.getLongValue("timeoutMillis"));
        return reply;
    }

    private static JSONObject failed(Throwable failure) {
        JSONObject view = new JSONObject(true);
        view.put("failure", failure.toString());
        return view;
    }
}
