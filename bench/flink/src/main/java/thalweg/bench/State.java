package thalweg.bench;

import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** --keys N --hot N --rate N --delay MS --stop FILE --result DIR: the same as bench/jobs/state. */
public final class State {
    private State() {}

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        long keys = a.number("keys", 1_000_000);
        long hot = a.number("hot", 0);
        String result = a.get("result", "");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.fromSource(new Numbers<>(n -> Rows.make(n, keys, hot), Long.MAX_VALUE / 2, a.number("rate", 0), a.get("stop", ""), keys), WatermarkStrategy.noWatermarks(), "events", Types.POJO(Rows.In.class))
                .uid("events").setParallelism(1)
                .keyBy(e -> e.key, Types.LONG)
                .process(new Keep(a.number("delay", 0), a.get("stop", ""))).returns(Rows.Result.class).uid("rows")
                .sinkTo(new Tally<>(result, Rows.Result::sum, r -> 1, true)).uid("out");
        env.execute("state");
    }

    private static final class Keep extends KeyedProcessFunction<Long, Rows.In, Rows.Result> {
        private final String stop;
        private long delay; // ms that each event takes once its key was there, until the file stop exists
        private transient ValueState<Rows.Row> row;

        Keep(long delay, String stop) {
            this.delay = delay;
            this.stop = stop;
        }

        @Override
        public void open(OpenContext c) {
            row = getRuntimeContext().getState(new ValueStateDescriptor<>("row", Types.POJO(Rows.Row.class)));
        }

        @Override
        public void processElement(Rows.In e, Context c, Collector<Rows.Result> out) throws Exception {
            Rows.Row r = row.value();
            if (r == null) {
                r = new Rows.Row();
            } else if (delay > 0) {
                if (Files.exists(Path.of(stop))) {
                    delay = 0;
                }
                Thread.sleep(delay);
            }
            Rows.Result res = r.update(c.getCurrentKey());
            row.update(r);
            out.collect(res);
        }
    }
}
