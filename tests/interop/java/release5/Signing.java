import com.alibaba.fastjson.JSONObject;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Clients with the credentials of a user, or with none, and what servers refuse to them. */
final class Signing {
    private static final int NO_PERMISSION = 16;
    private static final long PATIENCE_SECONDS = 30;

    /** Signs requests if there is a user to do so. Some consumers only log what they are refused. */
    private static final class Witness implements RPCHook {
        private final RPCHook signer;
        private final Set<String> refused = new ConcurrentSkipListSet<>();
        private final CompletableFuture<Boolean> received = new CompletableFuture<>();

        private Witness(RPCHook signer) {
            this.signer = signer;
        }

        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (signer != null) {
                signer.doBeforeRequest(address, request);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request,
            RemotingCommand answer) {
            if (answer != null && answer.getCode() == NO_PERMISSION) {
                refused.add(answer.getRemark());
                received.complete(false);
            }
        }

        /** Whether a message comes before a refusal. */
        private boolean receives() throws Exception {
            try {
                return received.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            } catch (TimeoutException nothing) {
                return false;
            }
        }
    }

    private Signing() {
    }

    /**
     * Command: role (send, pull, lite-pull, push), namesrv, group, topic, which has a message;
     * accessKey and secretKey, or neither. Answer: done, error (what the client throws), refused
     * (the remarks of the servers).
     */
    static Object run(JSONObject command) {
        Witness hook = new Witness(Release.signer(command));
        JSONObject answer = new JSONObject(true);
        answer.put("done", false);
        answer.put("error", null);
        try {
            answer.put("done", play(command, hook));
        } catch (Exception failure) {
            answer.put("error", failure.getMessage());
        }
        answer.put("refused", hook.refused);
        return answer;
    }

    private static boolean play(JSONObject command, Witness hook) throws Exception {
        switch (command.getString("role")) {
            case "send":
                return send(command, hook);
            case "pull":
                return pull(command, hook);
            case "lite-pull":
                return litePull(command, hook);
            case "push":
                return push(command, hook);
            default:
                throw new IllegalArgumentException(command.getString("role"));
        }
    }

    private static boolean send(JSONObject command, Witness hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getString("group"), hook);
        Peer.configure(producer, command, "signing");
        producer.setSendMsgTimeout(15_000);
        producer.start();
        try {
            producer.send(new Message(command.getString("topic"), new byte[1]));
            return true;
        } finally {
            producer.shutdown();
        }
    }

    @SuppressWarnings("deprecation")
    private static boolean pull(JSONObject command, Witness hook) throws Exception {
        DefaultMQPullConsumer consumer =
            new DefaultMQPullConsumer(command.getString("group"), hook);
        Peer.configure(consumer, command, "signing");
        consumer.start();
        try {
            int count = 0;
            for (MessageQueue queue
                : consumer.fetchSubscribeMessageQueues(command.getString("topic"))) {
                long min = consumer.minOffset(queue);
                if (consumer.maxOffset(queue) > min) {
                    count += consumer.pull(queue, "*", min, 1).getMsgFoundList().size();
                }
            }
            return count > 0;
        } finally {
            consumer.shutdown();
        }
    }

    private static boolean litePull(JSONObject command, Witness hook) throws Exception {
        DefaultLitePullConsumer consumer =
            new DefaultLitePullConsumer(command.getString("group"), hook);
        Peer.configure(consumer, command, "signing");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.start();
        try {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
            while (!hook.received.isDone() && System.nanoTime() < end) {
                if (!consumer.poll(200).isEmpty()) {
                    return true;
                }
            }
            return false;
        } finally {
            consumer.shutdown();
        }
    }

    private static boolean push(JSONObject command, Witness hook) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(command.getString("group"), hook);
        Peer.configure(consumer, command, "signing");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(command.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            hook.received.complete(true);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return hook.receives();
        } finally {
            consumer.shutdown();
        }
    }
}
