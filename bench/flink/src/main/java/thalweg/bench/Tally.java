package thalweg.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Drops records and keeps their number and a checksum, which it writes to DIR/part-N at the end of the input. */
public final class Tally<T> implements Sink<T> {
    /** A record's part in the checksum. */
    public interface Sum<T> extends Serializable {
        long of(T x);
    }

    private final String dir;
    private final Sum<T> sum;
    private final Sum<T> count;

    public Tally(String dir, Sum<T> sum) {
        this(dir, sum, x -> 1);
    }

    /** count is how many records one counts for. */
    public Tally(String dir, Sum<T> sum, Sum<T> count) {
        this.dir = dir;
        this.sum = sum;
        this.count = count;
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext c) {
        return new Writer<>(dir, sum, count, c.getTaskInfo().getIndexOfThisSubtask());
    }

    private static final class Writer<T> implements SinkWriter<T> {
        private final String dir;
        private final Sum<T> sum;
        private final Sum<T> counts;
        private final int subtask;
        private long count;
        private long all;

        Writer(String dir, Sum<T> sum, Sum<T> counts, int subtask) {
            this.dir = dir;
            this.sum = sum;
            this.counts = counts;
            this.subtask = subtask;
        }

        @Override
        public void write(T x, Context c) {
            count += counts.of(x);
            all += sum.of(x);
        }

        @Override
        public void flush(boolean end) throws IOException {
            if (end && !dir.isEmpty()) {
                Files.writeString(Path.of(dir, "part-" + subtask), count + " " + all + "\n");
            }
        }

        @Override
        public void close() {}
    }
}
