package thalweg.bench;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** --case generator|chain|window|start --events N --keys K --window SECONDS --result DIR --probe HOST:PORT --rate R: the same as bench/jobs/pipe. */
public final class Pipe {
    private Pipe() {}

    /** The result of a window. */
    public static class Count {
        public long key;
        public long start;
        public long count;

        long sum() {
            return Event.mix(key + start * 31) * count;
        }
    }

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        String kind = a.get("case", "chain");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        WatermarkStrategy<Event> wm = kind.equals("window")
                ? WatermarkStrategy.<Event>forMonotonousTimestamps().withTimestampAssigner((e, t) -> e.at)
                : WatermarkStrategy.noWatermarks();
        boolean start = kind.equals("start");
        long keys = a.number("keys", 10_000);
        DataStream<Event> in = env.fromSource(
                new Numbers<>(n -> Event.make(n, keys), start ? Long.MAX_VALUE : a.number("events", 10_000_000), start ? a.number("rate", 100) : 0),
                wm, "events", Types.POJO(Event.class)).uid("events");
        String result = a.get("result", "");
        switch (kind) {
            case "generator":
                in.sinkTo(new Tally<Event>(result, e -> e.value)).uid("out");
                break;
            case "chain":
                in.map(e -> {
                    e.value = e.value * 908 + 1000;
                    return e;
                }).returns(Event.class).uid("map").filter(e -> e.key % 4 != 0).uid("filter")
                        .sinkTo(new Tally<Event>(result, e -> e.value)).uid("out");
                break;
            case "start":
                in.keyBy(e -> e.key, Types.LONG)
                        .reduce((x, y) -> {
                            y.value += x.value;
                            return y;
                        })
                        .uid("sum")
                        .sinkTo(new Probe<>(a.get("probe", "localhost:9"))).uid("out");
                break;
            case "window":
                in.keyBy(e -> e.key, Types.LONG)
                        .window(TumblingEventTimeWindows.of(Duration.ofSeconds(a.number("window", 10))))
                        .aggregate(new Counter(), new Emit())
                        .uid("count")
                        .sinkTo(new Tally<Count>(result, Count::sum)).uid("out");
                break;
            default:
                throw new IllegalArgumentException("unknown case " + kind);
        }
        env.execute("pipe-" + kind);
    }

    private static final class Counter implements AggregateFunction<Event, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Event e, Long n) {
            return n + 1;
        }

        @Override
        public Long getResult(Long n) {
            return n;
        }

        @Override
        public Long merge(Long x, Long y) {
            return x + y;
        }
    }

    private static final class Emit extends ProcessWindowFunction<Long, Count, Long, TimeWindow> {
        @Override
        public void process(Long key, Context c, Iterable<Long> in, Collector<Count> out) {
            Count n = new Count();
            n.key = key;
            n.start = c.window().getStart();
            n.count = in.iterator().next();
            out.collect(n);
        }
    }
}
