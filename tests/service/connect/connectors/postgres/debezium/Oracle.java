import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.format.Json;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

/** Prints each event of Debezium as a line: topic, headers, key and value as JSON. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        Properties props = new Properties();
        try (Reader reader = Files.newBufferedReader(Path.of(args[0]))) { props.load(reader); }
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(props)
            .notifying(event -> {
                StringBuilder headers = new StringBuilder();
                event.headers().forEach(h -> headers.append(headers.length() == 0 ? "" : ",")
                    .append('"').append(h.getKey()).append("\":").append(h.getValue()));
                out.println("{\"topic\":\"" + event.destination() + "\",\"headers\":{" + headers + "},\"key\":"
                    + event.key() + ",\"value\":" + event.value() + "}");
            })
            .using((success, message, error) -> {
                System.err.println("ended: " + message);
                if (error != null) error.printStackTrace();
            })
            .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        System.in.read();
        engine.close();
        thread.shutdownNow();
        System.exit(0);
    }
}
