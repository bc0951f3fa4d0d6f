package thalweg.bench;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.formats.json.JsonDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * order-totals on Flink: --brokers B --in T --out T --window SECONDS (or --window-ms MS) --out-of-orderness SECONDS --bounded true|false
 * --guarantee exactly-once|at-least-once --linger-ms MS.
 */
public final class Orders {
    private Orders() {}

    /** One purchase. */
    public static class Purchase {
        public String customer_id;
        public long amount_in_cents;
        public String occurred_at;
    }

    /** What a customer spent in a window. */
    public static class Total {
        public String customer;
        public long start;
        public long end;
        public long cents;
        public long count;
    }

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        KafkaSourceBuilder<Purchase> b = KafkaSource.<Purchase>builder()
                .setBootstrapServers(a.get("brokers", "localhost:9092"))
                .setTopics(a.get("in", "orders"))
                .setGroupId("flink-" + a.get("out", "order-totals"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new JsonDeserializationSchema<>(Purchase.class));
        if (Boolean.parseBoolean(a.get("bounded", "false"))) {
            b.setBounded(OffsetsInitializer.latest());
        }
        Properties p = new Properties();
        p.setProperty("transaction.timeout.ms", "600000");
        p.setProperty("linger.ms", a.get("linger-ms", "5")); // the default of Kafka's client
        Duration window = Duration.ofMillis(a.number("window-ms", 1000 * a.number("window", 60)));
        env.fromSource(b.build(), WatermarkStrategy.<Purchase>forBoundedOutOfOrderness(Duration.ofSeconds(a.number("out-of-orderness", 10)))
                        .withTimestampAssigner((o, t) -> Instant.parse(o.occurred_at).toEpochMilli()).withIdleness(Duration.ofMinutes(1)), "orders")
                .uid("orders")
                .keyBy(o -> o.customer_id, Types.STRING)
                .window(TumblingEventTimeWindows.of(window))
                .aggregate(new Sum(), new Emit())
                .uid("customer-totals")
                .sinkTo(KafkaSink.<Total>builder()
                        .setBootstrapServers(a.get("brokers", "localhost:9092"))
                        .setKafkaProducerConfig(p)
                        .setDeliveryGuarantee(a.get("guarantee", "exactly-once").equals("at-least-once")
                                ? DeliveryGuarantee.AT_LEAST_ONCE : DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix("flink-" + a.get("out", "order-totals"))
                        .setRecordSerializer(KafkaRecordSerializationSchema.<Total>builder()
                                .setTopic(a.get("out", "order-totals"))
                                .setKeySerializationSchema((SerializationSchema<Total>) t -> t.customer.getBytes(StandardCharsets.UTF_8))
                                .setValueSerializationSchema(new Json())
                                .build())
                        .build())
                .uid("totals-out");
        env.execute("order-totals");
    }

    private static final class Json implements SerializationSchema<Total> {
        @Override
        public byte[] serialize(Total t) {
            return ("{\"customer_id\":\"" + t.customer + "\",\"window_start\":\"" + Instant.ofEpochMilli(t.start) + "\",\"window_end\":\""
                    + Instant.ofEpochMilli(t.end) + "\",\"amount_in_cents\":" + t.cents + ",\"count\":" + t.count + "}")
                    .getBytes(StandardCharsets.UTF_8);
        }
    }

    private static final class Sum implements AggregateFunction<Purchase, Total, Total> {
        @Override
        public Total createAccumulator() {
            return new Total();
        }

        @Override
        public Total add(Purchase o, Total t) {
            t.cents += o.amount_in_cents;
            t.count++;
            return t;
        }

        @Override
        public Total getResult(Total t) {
            return t;
        }

        @Override
        public Total merge(Total x, Total y) {
            x.cents += y.cents;
            x.count += y.count;
            return x;
        }
    }

    private static final class Emit extends ProcessWindowFunction<Total, Total, String, TimeWindow> {
        @Override
        public void process(String key, Context c, Iterable<Total> in, Collector<Total> out) {
            Total t = in.iterator().next();
            t.customer = key;
            t.start = c.window().getStart();
            t.end = c.window().getEnd();
            out.collect(t);
        }
    }
}
