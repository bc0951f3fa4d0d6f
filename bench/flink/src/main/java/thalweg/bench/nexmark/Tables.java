package thalweg.bench.nexmark;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;
import thalweg.bench.Tally;

/**
 * The tables of the queries. 'connector' = 'nexmark': 'kind' = 'events' is the stream, 'side' the bounded table of query 13, 'tally' a sink.
 */
public final class Tables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ConfigOption<String> KIND = ConfigOptions.key("kind").stringType().noDefaultValue();
    private static final ConfigOption<Long> EVENTS = ConfigOptions.key("events").longType().defaultValue(1_000_000L);
    private static final ConfigOption<Long> RATE = ConfigOptions.key("rate").longType().defaultValue(100_000L);
    private static final ConfigOption<String> FILE = ConfigOptions.key("file").stringType().defaultValue("");
    private static final ConfigOption<String> DIR = ConfigOptions.key("dir").stringType().defaultValue("");
    /** The columns of the checksum, in order; - stands for 0. Default: all. */
    private static final ConfigOption<String> COLUMNS = ConfigOptions.key("columns").stringType().defaultValue("");
    /** A column that is added up, in place of counting rows and of a checksum; -1 for none. */
    private static final ConfigOption<Integer> COUNTS = ConfigOptions.key("counts").intType().defaultValue(-1);

    @Override
    public String factoryIdentifier() {
        return "nexmark";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(KIND);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(EVENTS, RATE, FILE, DIR, COLUMNS, COUNTS);
    }

    private ReadableConfig options(Context ctx) {
        FactoryUtil.TableFactoryHelper h = FactoryUtil.createTableFactoryHelper(this, ctx);
        h.validate();
        return h.getOptions();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context ctx) {
        ReadableConfig o = options(ctx);
        if (o.get(KIND).equals("side")) {
            return new Side();
        }
        return new Scan(o.get(EVENTS), o.get(RATE), o.get(FILE));
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context ctx) {
        ReadableConfig o = options(ctx);
        return new Sink(o.get(DIR), o.get(COLUMNS), o.get(COUNTS), ctx.getPhysicalRowDataType());
    }

    private record Scan(long events, long rate, String file) implements ScanTableSource {
        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext c) {
            return SourceProvider.of(Rows.source(events, rate, file));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "nexmark";
        }
    }

    private record Side() implements LookupTableSource {
        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext c) {
            return LookupFunctionProvider.of(new Lookup());
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "nexmark side";
        }
    }

    /** Key k has value-k, for 10,000 keys. */
    public static final class Lookup extends LookupFunction {
        private transient Map<Long, Collection<RowData>> rows;

        @Override
        public void open(FunctionContext c) {
            rows = new HashMap<>();
            for (long k = 0; k < 10_000; k++) {
                rows.put(k, List.of(GenericRowData.of(k, StringData.fromString("value-" + k))));
            }
        }

        @Override
        public Collection<RowData> lookup(RowData key) {
            return rows.getOrDefault(key.getLong(0), List.of());
        }
    }

    private record Sink(String dir, String columns, int counts, DataType type) implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return requested; // with what is retracted, so that the checksum is that of the rows that stay
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(DynamicTableSink.Context c) {
            if (counts >= 0) {
                int at = counts;
                return SinkV2Provider.of(new Tally<RowData>(dir, r -> 0, r -> sign(r) * r.getLong(at)));
            }
            Columns all = new Columns(columns, type.getLogicalType().getChildren());
            return SinkV2Provider.of(new Tally<RowData>(dir, r -> sign(r) * all.sum(r), Sink::sign));
        }

        private static long sign(RowData r) {
            RowKind k = r.getRowKind();
            return k == RowKind.INSERT || k == RowKind.UPDATE_AFTER ? 1 : -1;
        }

        @Override
        public DynamicTableSink copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "tally";
        }
    }

    /** The columns of a checksum. */
    private static final class Columns implements java.io.Serializable {
        private final int[] at; // -1 for 0
        private final LogicalType[] types;

        Columns(String list, List<LogicalType> all) {
            String[] names = list.split(",");
            at = new int[list.isEmpty() ? all.size() : names.length];
            types = new LogicalType[at.length];
            for (int i = 0; i < at.length; i++) {
                at[i] = list.isEmpty() ? i : names[i].equals("-") ? -1 : Integer.parseInt(names[i]);
                types[i] = at[i] < 0 ? null : all.get(at[i]);
            }
        }

        long sum(RowData r) {
            long h = 0;
            for (int i = 0; i < at.length; i++) {
                if (at[i] >= 0) {
                    h += Checksum.part(i, value(r, at[i], types[i]));
                }
            }
            return Checksum.end(h);
        }

        private static long value(RowData r, int i, LogicalType t) {
            switch (t.getTypeRoot()) {
                case BIGINT:
                    return r.getLong(i);
                case INTEGER:
                    return r.getInt(i);
                case CHAR:
                case VARCHAR:
                    return Checksum.text(r.getString(i));
                case TIMESTAMP_WITHOUT_TIME_ZONE:
                case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                    return r.getTimestamp(i, 3).getMillisecond();
                case DECIMAL:
                    return r.getDecimal(i, ((DecimalType) t).getPrecision(), ((DecimalType) t).getScale()).toUnscaledLong();
                default:
                    throw new IllegalArgumentException("no checksum of " + t);
            }
        }
    }
}
