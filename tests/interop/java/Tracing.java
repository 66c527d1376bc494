import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A producer and a consumer that write the message trace. */
final class Tracing {
    private static final Map<String, Tracing> RUNNING = new ConcurrentHashMap<>();

    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer consumer;

    private Tracing(String group) {
        producer = new DefaultMQProducer("P" + group, true, null);
        consumer = new DefaultMQPushConsumer(group, true, null);
    }

    /**
     * Command: namesrv, group (its producers' has a P before it), topic, bodies, timeoutMillis.
     * Sends and consumes the messages. Answer: their unique ids. A shutdown loses the last records
     * of a trace that are on their way, so both stay until they are stopped.
     */
    static Object start(JSONObject command) throws Exception {
        Tracing tracing = new Tracing(command.getString("group"));
        RUNNING.put(command.getString("group"), tracing);
        List<String> ids = tracing.send(command);
        tracing.consume(command, ids.size());
        tracing.producer.getTraceDispatcher().flush();
        tracing.consumer.getTraceDispatcher().flush();
        return ids;
    }

    private List<String> send(JSONObject command) throws Exception {
        Peer.configure(producer, command, "traced");
        producer.start();
        List<String> ids = new ArrayList<>();
        JSONArray bodies = command.getJSONArray("bodies");
        for (int i = 0; i < bodies.size(); i++) {
            ids.add(producer.send(new Message(command.getString("topic"),
                bodies.getString(i).getBytes(StandardCharsets.UTF_8))).getMsgId());
        }
        return ids;
    }

    private void consume(JSONObject command, int count) throws Exception {
        CountDownLatch missing = new CountDownLatch(count);
        Peer.configure(consumer, command, "traced");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> missing.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!missing.await(command.getLongValue("timeoutMillis"), TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(missing.getCount() + " messages did not come");
        }
    }

    /** Command: group. */
    static Object stop(JSONObject command) {
        Tracing tracing = RUNNING.remove(command.getString("group"));
        tracing.producer.shutdown();
        tracing.consumer.shutdown();
        return true;
    }
}
