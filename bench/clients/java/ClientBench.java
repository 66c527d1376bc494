import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The official client under measurement: commands as bench/clients/peer.py says, one in a line of
 * standard input, its result as a line of JSON. One virtual machine serves all, so it is warm.
 */
public final class ClientBench {
    private static final int BODY = 1024;
    /** Sends before the clock starts: the route and the connection are there then. */
    private static final int FIRST = 50;
    /** Milliseconds; the default is too short for the first send on a busy machine. */
    private static final int TIMEOUT = 10_000;

    private final AtomicLong failed = new AtomicLong();

    private ClientBench() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // What the client libraries print must not mix with the answers.
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            int messages = Integer.parseInt(words[3]);
            ClientBench bench = new ClientBench();
            OperatingSystemMXBean machine =
                ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
            long cpu = machine.getProcessCpuTime();
            double seconds;
            switch (words[0]) {
                case "one":
                    seconds = bench.send(words[1], words[2], messages, 0);
                    break;
                case "many":
                    seconds = bench.send(words[1], words[2], messages, Integer.parseInt(words[4]));
                    break;
                case "consume":
                    seconds = bench.consume(words[1], words[2], messages);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            cpu = machine.getProcessCpuTime() - cpu;
            answers.printf(Locale.ROOT, "{\"seconds\": %.6f, \"cpu\": %.6f, \"failed\": %d}%n",
                seconds, cpu / 1e9, bench.failed.get());
            answers.flush();
        }
        System.exit(0); // Client threads that are not daemons would keep the process.
    }

    /** Seconds; with 0 in flight synchronously, one at a time. */
    private double send(String namesrv, String topic, int messages, int inFlight)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench_java");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("send" + System.nanoTime());
        producer.setSendMsgTimeout(TIMEOUT);
        producer.start();
        try {
            byte[] body = new byte[BODY];
            for (int i = 0; i < FIRST; i++) {
                producer.send(new Message(topic, body));
            }
            long begin = System.nanoTime();
            if (inFlight == 0) {
                for (int i = 0; i < messages; i++) {
                    producer.send(new Message(topic, body));
                }
            } else {
                sendAsync(producer, topic, body, messages, inFlight);
            }
            return (System.nanoTime() - begin) / 1e9;
        } finally {
            producer.shutdown();
        }
    }

    private void sendAsync(DefaultMQProducer producer, String topic, byte[] body, int messages,
        int inFlight) throws Exception {
        Semaphore room = new Semaphore(inFlight);
        SendCallback answered = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable failure) {
                failed.incrementAndGet();
                room.release();
            }
        };
        for (int i = 0; i < messages; i++) {
            room.acquire();
            producer.send(new Message(topic, body), answered);
        }
        room.acquire(inFlight);
    }

    /** Seconds from the first message to the last, of a group that has read nothing yet. */
    private double consume(String namesrv, String topic, int messages) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("bench_java_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicLong count = new AtomicLong();
        AtomicLong begin = new AtomicLong();
        AtomicLong end = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            begin.compareAndSet(0, System.nanoTime());
            if (count.addAndGet(some.size()) >= messages && end.compareAndSet(0,
                System.nanoTime())) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!all.await(120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("consumed only " + count.get());
            }
            return (end.get() - begin.get()) / 1e9;
        } finally {
            consumer.shutdown();
        }
    }
}
