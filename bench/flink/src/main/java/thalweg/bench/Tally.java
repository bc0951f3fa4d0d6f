package thalweg.bench;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Collection;
import java.util.List;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Drops records and keeps their number and a checksum, which it writes to DIR/part-N at the end of the input. The tally is in the
 * checkpoints.
 */
public final class Tally<T> implements Sink<T>, SupportsWriterState<T, long[]> {
    /** A record's part in the checksum. */
    public interface Sum<T> extends Serializable {
        long of(T x);
    }

    private final String dir;
    private final Sum<T> sum;
    private final Sum<T> count;
    private final boolean progress;

    public Tally(String dir, Sum<T> sum) {
        this(dir, sum, x -> 1);
    }

    /** count is how many records one counts for. */
    public Tally(String dir, Sum<T> sum, Sum<T> count) {
        this(dir, sum, count, false);
    }

    /** progress also writes the number of records to DIR/progress-N each 50 ms. */
    public Tally(String dir, Sum<T> sum, Sum<T> count, boolean progress) {
        this.dir = dir;
        this.sum = sum;
        this.count = count;
        this.progress = progress;
    }

    @Override
    public StatefulSinkWriter<T, long[]> createWriter(WriterInitContext c) {
        return new Writer(c.getTaskInfo().getIndexOfThisSubtask());
    }

    @Override
    public StatefulSinkWriter<T, long[]> restoreWriter(WriterInitContext c, Collection<long[]> restored) {
        Writer w = new Writer(c.getTaskInfo().getIndexOfThisSubtask());
        for (long[] t : restored) {
            w.total += t[0];
            w.all += t[1];
        }
        return w;
    }

    @Override
    public SimpleVersionedSerializer<long[]> getWriterStateSerializer() {
        return new Codec();
    }

    private static final class Codec implements SimpleVersionedSerializer<long[]> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(long[] t) {
            return ByteBuffer.allocate(16).putLong(t[0]).putLong(t[1]).array();
        }

        @Override
        public long[] deserialize(int version, byte[] b) {
            ByteBuffer buf = ByteBuffer.wrap(b);
            return new long[] {buf.getLong(), buf.getLong()};
        }
    }

    private final class Writer implements StatefulSinkWriter<T, long[]> {
        private final int subtask;
        private long total;
        private long all;
        private int since; // records since the clock was looked at
        private long told;

        Writer(int subtask) {
            this.subtask = subtask;
            if (!dir.isEmpty()) {
                try {
                    Files.writeString(Path.of(dir, "open-" + subtask), ""); // marks the start
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        }

        @Override
        public void write(T x, Context c) throws IOException {
            total += count.of(x);
            all += sum.of(x);
            if (progress && ++since == 16) {
                tell();
            }
        }

        private void tell() throws IOException {
            since = 0;
            long now = System.nanoTime();
            if (told != 0 && now - told < 50_000_000) {
                return;
            }
            told = now;
            Path fresh = Path.of(dir, "progress-" + subtask + ".new");
            Files.writeString(fresh, total + "\n");
            Files.move(fresh, Path.of(dir, "progress-" + subtask), StandardCopyOption.ATOMIC_MOVE);
        }

        @Override
        public void flush(boolean end) throws IOException {
            if (end && !dir.isEmpty()) {
                Files.writeString(Path.of(dir, "part-" + subtask), total + " " + all + "\n");
            }
        }

        @Override
        public List<long[]> snapshotState(long id) {
            return List.of(new long[] {total, all});
        }

        @Override
        public void close() {}
    }
}
