import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/** The official filter module itself, asked about expressions and properties. */
final class Filtering {
    private Filtering() {
    }

    /**
     * Command: expressions [text], properties [{name: value}]. Answer: for each expression "!" when
     * it does not compile, else one letter per property set: T, F, N (null), E (it throws).
     */
    static Object run(JSONObject command) {
        List<Map<String, String>> messages = new ArrayList<>();
        JSONArray sets = command.getJSONArray("properties");
        for (int i = 0; i < sets.size(); i++) {
            Map<String, String> properties = new HashMap<>();
            for (Map.Entry<String, Object> one : sets.getJSONObject(i).entrySet()) {
                properties.put(one.getKey(), (String) one.getValue());
            }
            messages.add(properties);
        }
        List<String> results = new ArrayList<>();
        JSONArray expressions = command.getJSONArray("expressions");
        for (int i = 0; i < expressions.size(); i++) {
            results.add(judge(expressions.getString(i), messages));
        }
        return results;
    }

    private static String judge(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable wrong) {
            return "!";
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> properties : messages) {
            letters.append(evaluate(expression, properties));
        }
        return letters.toString();
    }

    private static char evaluate(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value == null ? 'N' : (Boolean) value ? 'T' : 'F';
        } catch (Throwable incomparable) {
            return 'E';
        }
    }
}
