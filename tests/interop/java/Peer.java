import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

/**
 * The official Java client behind a pipe: each line of standard input is one JSON command, each
 * line of standard output its JSON answer. One virtual machine serves a whole test session, so
 * that a test pays for its requests and not for a start of Java.
 *
 * <p>An answer is {"ok": ...} or {"error": "exception text", "trace": "..."}.
 */
public final class Peer {
    private Peer() {
    }

    public static void main(String[] args) throws Exception {
        hurryShutdowns(Thread.currentThread());
        PrintStream answers = System.out;
        System.setOut(System.err); // What the client libraries print must not mix with the answers.
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject answer = new JSONObject(true);
            try {
                answer.put("ok", run(JSON.parseObject(line)));
            } catch (Throwable failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                answer.put("error", failure.toString());
                answer.put("trace", trace.toString());
            }
            String text = JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue,
                SerializerFeature.DisableCircularReferenceDetect);
            answers.write((text + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        System.exit(0); // Client threads that are not daemons would keep the process.
    }

    /**
     * A client's shutdown waits 3 s when its event thread polls its queue just as the one interrupt
     * passes. That would be most of a session's time, so while the main thread waits there the
     * interrupt is repeated; the event thread of a living client only logs it.
     */
    private static void hurryShutdowns(Thread main) {
        Thread hurry = new Thread(() -> {
            while (true) {
                LockSupport.parkNanos(50_000_000L);
                for (StackTraceElement frame : main.getStackTrace()) {
                    if (frame.getClassName().equals("org.apache.rocketmq.common.ServiceThread")) {
                        interruptEventThreads();
                        break;
                    }
                }
            }
        });
        hurry.setDaemon(true);
        hurry.start();
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
            case "recall":
                return Sending.recall(command);
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
            case "sql-filter":
                return Filtering.run(command);
            case "transaction-start":
                return Transacting.start(command);
            case "transaction-send":
                return Transacting.send(command);
            case "transaction-checks":
                return Transacting.checks(command);
            case "transaction-stop":
                return Transacting.stop(command);
            case "request":
                return Requesting.run(command);
            case "mqadmin":
                return Admin.run(command);
            default:
                throw new IllegalArgumentException("no such command: " + name);
        }
    }
}
