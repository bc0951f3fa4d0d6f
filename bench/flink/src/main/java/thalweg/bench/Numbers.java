package thalweg.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.util.InstantiationUtil;

/** Records 0 to count-1; reader i of p makes those congruent to i modulo p, so that event time advances alike in all of them. */
public class Numbers<T> implements Source<T, Numbers.Split, Integer> {
    /** Makes the records of one split. */
    public interface Maker<T> extends Serializable {
        /** Called once, before any record: next is the first one's number, those of the split are shards apart. */
        default void open(int shard, int shards, long next) throws IOException {}

        /** Makes record n; numbers come in order. */
        T make(long n);
    }

    private static final int BATCH = 512;
    private final Maker<T> maker;
    private final long count;
    private final long rate;
    private final String stop;
    private final long from;

    /** rate is in records per second and reader; 0 for no limit. Without a limit of count the source is unbounded. */
    public Numbers(Maker<T> maker, long count, long rate) {
        this(maker, count, rate, "");
    }

    /** The file stop ends the input as soon as it exists; "" for none. */
    public Numbers(Maker<T> maker, long count, long rate, String stop) {
        this(maker, count, rate, stop, 0);
    }

    /** The rate counts from a record's number on. */
    public Numbers(Maker<T> maker, long count, long rate, String stop, long from) {
        this.from = from;
        this.maker = maker;
        this.count = count;
        this.rate = rate;
        this.stop = stop;
    }

    /** Shard of shards, and the next number. */
    public static final class Split implements SourceSplit {
        final int shard;
        final int shards;
        long next;

        Split(int shard, int shards, long next) {
            this.shard = shard;
            this.shards = shards;
            this.next = next;
        }

        @Override
        public String splitId() {
            return "shard-" + shard;
        }
    }

    @Override
    public Boundedness getBoundedness() {
        return count == Long.MAX_VALUE ? Boundedness.CONTINUOUS_UNBOUNDED : Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<T, Split> createReader(SourceReaderContext context) {
        return new Reader(context);
    }

    private final class Reader implements SourceReader<T, Split> {
        private final SourceReaderContext context;
        private final ArrayDeque<Split> splits = new ArrayDeque<>();
        private CompletableFuture<Void> available = new CompletableFuture<>();
        private boolean noMore;
        private Maker<T> made; // of the first split
        private int polls;
        private boolean slow; // the rate counts
        private long due; // of the next record with a rate, in System.nanoTime

        Reader(SourceReaderContext context) {
            this.context = context;
        }

        @Override
        public void start() {
            if (splits.isEmpty()) {
                context.sendSplitRequest();
            }
        }

        @Override
        public InputStatus pollNext(ReaderOutput<T> out) throws Exception {
            Split s = splits.peek();
            if (s == null) {
                return noMore ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
            }
            if (made == null) {
                made = InstantiationUtil.clone(maker);
                made.open(s.shard, s.shards, s.next);
            }
            slow = rate > 0 && s.next >= from;
            if (!stop.isEmpty() && (++polls % 16 == 0 || slow) && Files.exists(Path.of(stop))) {
                splits.clear();
                return InputStatus.END_OF_INPUT;
            }
            if (slow) {
                return slowly(s, out);
            }
            for (int i = 0; i < BATCH; i++) {
                if (s.next >= count) {
                    splits.poll();
                    made = null;
                    return InputStatus.MORE_AVAILABLE;
                }
                out.collect(made.make(s.next));
                s.next += s.shards;
            }
            return InputStatus.MORE_AVAILABLE;
        }

        private InputStatus slowly(Split s, ReaderOutput<T> out) {
            long now = System.nanoTime();
            if (due == 0) {
                due = now;
            }
            if (now < due) {
                available = new CompletableFuture<Void>().completeOnTimeout(null, due - now, TimeUnit.NANOSECONDS);
                return InputStatus.NOTHING_AVAILABLE;
            }
            due += 1_000_000_000L / rate;
            out.collect(made.make(s.next));
            s.next += s.shards;
            return InputStatus.MORE_AVAILABLE;
        }

        @Override
        public List<Split> snapshotState(long id) {
            List<Split> all = new ArrayList<>();
            for (Split s : splits) {
                all.add(new Split(s.shard, s.shards, s.next));
            }
            return all;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return slow || splits.isEmpty() && !noMore ? available : CompletableFuture.completedFuture(null);
        }

        @Override
        public void addSplits(List<Split> more) {
            splits.addAll(more);
            wake();
        }

        @Override
        public void notifyNoMoreSplits() {
            noMore = true;
            wake();
        }

        private void wake() {
            available.complete(null);
            available = new CompletableFuture<>();
        }

        @Override
        public void close() {}
    }

    @Override
    public SplitEnumerator<Split, Integer> createEnumerator(SplitEnumeratorContext<Split> context) {
        return new Enumerator(context, 0);
    }

    @Override
    public SplitEnumerator<Split, Integer> restoreEnumerator(SplitEnumeratorContext<Split> context, Integer given) {
        return new Enumerator(context, given);
    }

    private static final class Enumerator implements SplitEnumerator<Split, Integer> {
        private final SplitEnumeratorContext<Split> context;
        private final ArrayDeque<Split> back = new ArrayDeque<>();
        private int given;

        Enumerator(SplitEnumeratorContext<Split> context, int given) {
            this.context = context;
            this.given = given;
        }

        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {
            int all = context.currentParallelism();
            if (!back.isEmpty()) {
                context.assignSplit(back.poll(), subtask);
            } else if (given < all) {
                context.assignSplit(new Split(given, all, given), subtask);
                given++;
            }
            context.signalNoMoreSplits(subtask);
        }

        @Override
        public void addSplitsBack(List<Split> splits, int subtask) {
            back.addAll(splits);
        }

        @Override
        public void addReader(int subtask) {}

        @Override
        public Integer snapshotState(long id) {
            return given;
        }

        @Override
        public void close() {}
    }

    @Override
    public SimpleVersionedSerializer<Split> getSplitSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override
            public int getVersion() {
                return 1;
            }

            @Override
            public byte[] serialize(Split s) {
                return java.nio.ByteBuffer.allocate(16).putInt(s.shard).putInt(s.shards).putLong(s.next).array();
            }

            @Override
            public Split deserialize(int version, byte[] b) {
                java.nio.ByteBuffer buf = java.nio.ByteBuffer.wrap(b);
                return new Split(buf.getInt(), buf.getInt(), buf.getLong());
            }
        };
    }

    @Override
    public SimpleVersionedSerializer<Integer> getEnumeratorCheckpointSerializer() {
        return new SimpleVersionedSerializer<>() {
            @Override
            public int getVersion() {
                return 1;
            }

            @Override
            public byte[] serialize(Integer n) {
                return java.nio.ByteBuffer.allocate(4).putInt(n).array();
            }

            @Override
            public Integer deserialize(int version, byte[] b) {
                return java.nio.ByteBuffer.wrap(b).getInt();
            }
        };
    }
}
