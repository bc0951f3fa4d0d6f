package thalweg.bench.nexmark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.data.RowData;
import thalweg.bench.Args;
import thalweg.bench.Tally;

/** --query Q --events N --rate R --file FILE --result DIR: a query as Flink SQL, with the settings of the public benchmark. */
public final class Sql {
    private Sql() {}

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        String query = a.get("query", "q0");
        if (query.equals("floor")) {
            floor(a);
            return;
        }
        TableEnvironment t = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        t.getConfig().set("pipeline.name", query);
        t.getConfig().set("table.local-time-zone", "UTC");
        t.getConfig().set("table.exec.mini-batch.enabled", "true");
        t.getConfig().set("table.exec.mini-batch.allow-latency", "2 s");
        t.getConfig().set("table.exec.mini-batch.size", "50000");
        t.getConfig().set("table.optimizer.distinct-agg.split.enabled", "true");
        t.createTemporarySystemFunction("count_char", CountChar.class);
        for (String file : new String[] {"tables", query}) {
            String text = read("/nexmark/" + file + ".sql").replaceAll("(?m)--.*$", "").replace("${events}", a.get("events", "1000000"))
                    .replace("${rate}", a.get("rate", "100000")).replace("${file}", a.get("file", "")).replace("${dir}", a.get("result", ""));
            for (String s : text.split(";")) {
                if (!s.isBlank()) {
                    t.executeSql(s.strip());
                }
            }
        }
    }

    private static String read(String name) throws IOException {
        try (InputStream in = Sql.class.getResourceAsStream(name)) {
            if (in == null) {
                throw new IllegalArgumentException("no " + name);
            }
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** The rows' own cost. */
    private static void floor(Args a) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.fromSource(Rows.source(a.number("events", 1_000_000), a.number("rate", 100_000), a.get("file", "")), WatermarkStrategy.noWatermarks(), "events",
                TypeInformation.of(RowData.class)).sinkTo(new Tally<RowData>(a.get("result", ""), Rows::sum));
        env.execute("floor");
    }
}
