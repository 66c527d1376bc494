import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin within this process: the official commands, their output captured. */
final class Admin extends MQAdminStartup {
    private Admin() {
    }

    /** Command: args [subcommand, options...]. Answer: what the command printed, both streams. */
    static synchronized Object run(JSONObject command) {
        String[] args = command.getJSONArray("args").toArray(new String[0]);
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        SUB_COMMANDS.clear(); // Some commands keep a client that their last run has shut down.
        try {
            MQAdminStartup.main0(args, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
