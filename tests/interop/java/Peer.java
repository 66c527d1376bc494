import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * The official Java client behind a pipe: each line of standard input is one JSON command, each
 * line of standard output its JSON answer. One virtual machine serves a whole test session, so
 * that a test pays for its requests and not for a start of Java.
 *
 * <p>Commands run beside each other, each in a thread of its own. An answer bears the "id" of its
 * command and is {"id": n, "ok": ...} or {"id": n, "error": "exception text", "trace": "..."}.
 */
public final class Peer {
    private static final Set<Thread> RUNNING = ConcurrentHashMap.newKeySet();

    private Peer() {
    }

    public static void main(String[] args) throws Exception {
        hurryShutdowns();
        PrintStream answers = System.out;
        System.setOut(System.err); // What the client libraries print must not mix with the answers.
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            threads.execute(() -> {
                String answer = answer(command);
                synchronized (answers) {
                    byte[] bytes = (answer + "\n").getBytes(StandardCharsets.UTF_8);
                    answers.write(bytes, 0, bytes.length);
                    answers.flush();
                }
            });
        }
        System.exit(0); // Client threads that are not daemons would keep the process.
    }

    /** The name server of the command, and patience: a busy machine is not what tests are about. */
    static void configure(ClientConfig client, JSONObject command, String instance) {
        client.setNamesrvAddr(command.getString("namesrv"));
        client.setInstanceName(instance + System.nanoTime());
        client.setMqClientApiTimeout(15_000);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(10_000);
        }
        // A client that learns of queues while a heartbeat is under way sends no other one, and its
        // pulls are refused (subscription not latest) until the next: 30 s by default.
        client.setHeartbeatBrokerInterval(3_000);
    }

    private static String answer(JSONObject command) {
        JSONObject answer = new JSONObject(true);
        answer.put("id", command.get("id"));
        RUNNING.add(Thread.currentThread());
        try {
            answer.put("ok", run(command));
        } catch (Throwable failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            answer.put("error", failure.toString());
            answer.put("trace", trace.toString());
        } finally {
            RUNNING.remove(Thread.currentThread());
        }
        return JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect);
    }

    /**
     * A client's shutdown waits 3 s when its event thread polls its queue just as the one interrupt
     * passes. That would be most of a session's time, so while a command waits there the interrupt
     * is repeated; the event thread of a living client only logs it.
     */
    private static void hurryShutdowns() {
        Thread hurry = new Thread(() -> {
            while (true) {
                LockSupport.parkNanos(50_000_000L);
                if (RUNNING.stream().anyMatch(Peer::waitsForAServiceThread)) {
                    interruptEventThreads();
                }
            }
        });
        hurry.setDaemon(true);
        hurry.start();
    }

    private static boolean waitsForAServiceThread(Thread thread) {
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals("org.apache.rocketmq.common.ServiceThread")) {
                return true;
            }
        }
        return false;
    }

    private static void interruptEventThreads() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("NettyEventExecutor")) {
                thread.interrupt();
            }
        }
    }

    private static Object run(JSONObject command) throws Exception {
        String name = command.getString("do");
        switch (name) {
            case "send":
                return Sending.run(command);
            case "retry-start":
                return Retrying.start(command);
            case "retry-collect":
                return Retrying.collect(command);
            case "retry-stop":
                return Retrying.stop(command);
            case "pull":
                return Pulling.pull(command);
            case "lite-pull":
                return Pulling.litePull(command);
            case "push-start":
                return Pushing.start(command);
            case "push-collect":
                return Pushing.collect(command);
            case "push-commit":
                return Pushing.commit(command);
            case "push-stop":
                return Pushing.stop(command);
            case "member-start":
                return Members.start(command);
            case "member-queues":
                return Members.awaitQueues(command);
            case "member-collect":
                return Members.collect(command);
            case "member-stop":
                return Members.stop(command);
            case "transaction-start":
                return Transacting.start(command);
            case "transaction-send":
                return Transacting.send(command);
            case "transaction-checks":
                return Transacting.checks(command);
            case "transaction-stop":
                return Transacting.stop(command);
            case "trace-start":
                return Tracing.start(command);
            case "trace-stop":
                return Tracing.stop(command);
            case "request":
                return Requesting.run(command);
            default:
                return Release.run(name, command);
        }
    }
}
