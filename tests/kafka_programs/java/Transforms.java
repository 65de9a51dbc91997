import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Applies Kafka's own transforms and predicates. Each line of the input is a JSON object with the
 * class, its configuration and a record whose key, value and headers are as JsonConverter writes
 * them; for each, a line says what came out, or the class of the exception.
 */
public class Transforms {
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonConverter CONVERTER = new JsonConverter();

    public static void main(String[] arguments) throws Exception {
        CONVERTER.configure(
                Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream told = new PrintStream(new BufferedOutputStream(System.out), false, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            told.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        told.flush();
    }

    @SuppressWarnings("unchecked")
    static ObjectNode answer(JsonNode asked) {
        ObjectNode told = JSON.createObjectNode();
        Map<String, String> config = new HashMap<>();
        asked.get("config").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        SinkRecord record = record(asked);
        SinkRecord changed;
        try {
            Object made =
                    Class.forName(asked.get("type").asText()).getDeclaredConstructor().newInstance();
            if (made instanceof Predicate) {
                Predicate<SinkRecord> predicate = (Predicate<SinkRecord>) made;
                predicate.configure(config);
                return told.put("holds", predicate.test(record));
            }
            Transformation<SinkRecord> transformation = (Transformation<SinkRecord>) made;
            transformation.configure(config);
            changed = transformation.apply(record);
        } catch (Exception error) {
            return told.put("error", error.getClass().getSimpleName())
                    .put("message", String.valueOf(error.getMessage()));
        }
        if (changed == null) {
            return told.put("dropped", true);
        }
        try {
            told.put("topic", changed.topic());
            told.set("key", json(changed.keySchema(), changed.key()));
            told.set("value", json(changed.valueSchema(), changed.value()));
            ArrayNode headers = told.putArray("headers");
            for (Header header : changed.headers()) {
                headers.addArray().add(header.key()).add(json(header.schema(), header.value()));
            }
            return told;
        } catch (Exception error) {
            return JSON.createObjectNode()
                    .put("unwritable", error.getClass().getSimpleName())
                    .put("message", String.valueOf(error.getMessage()));
        }
    }

    static SinkRecord record(JsonNode asked) {
        SchemaAndValue key = data(asked.get("key"));
        SchemaAndValue value = data(asked.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode pair : asked.get("headers")) {
            headers.add(pair.get(0).asText(), data(pair.get(1)));
        }
        JsonNode ms = asked.get("timestamp");
        return new SinkRecord(
                asked.get("topic").asText(),
                asked.get("partition").asInt(),
                key.schema(),
                key.value(),
                value.schema(),
                value.value(),
                asked.get("offset").asLong(),
                ms.isNull() ? null : Long.valueOf(ms.asLong()),
                TimestampType.CREATE_TIME,
                headers);
    }

    static SchemaAndValue data(JsonNode node) {
        byte[] bytes = node.isNull() ? null : node.toString().getBytes(StandardCharsets.UTF_8);
        return CONVERTER.toConnectData("t", bytes);
    }

    static JsonNode json(Schema schema, Object value) throws Exception {
        byte[] bytes = CONVERTER.fromConnectData("t", schema, value);
        return bytes == null ? JSON.nullNode() : JSON.readTree(bytes);
    }
}
