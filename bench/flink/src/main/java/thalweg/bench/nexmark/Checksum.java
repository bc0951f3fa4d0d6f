package thalweg.bench.nexmark;

import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.binary.BinaryStringData;

/** Checksums of rows: the same as in bench/internal/nexmark/rows.go. */
final class Checksum {
    private static final long[] WEIGHTS = new long[16];

    static {
        for (int i = 0; i < WEIGHTS.length; i++) {
            WEIGHTS[i] = Rng.mix(i) | 1;
        }
    }

    private Checksum() {}

    /** One column's share. */
    static long part(int column, long value) {
        return value * WEIGHTS[column];
    }

    static long end(long parts) {
        return Rng.mix(parts);
    }

    static long row(long... columns) {
        long h = 0;
        for (int i = 0; i < columns.length; i++) {
            h += columns[i] * WEIGHTS[i];
        }
        return Rng.mix(h);
    }

    static long text(StringData s) {
        BinaryStringData b = (BinaryStringData) s;
        b.ensureMaterialized();
        int n = b.getSizeInBytes();
        return n == 0 ? 0 : (long) n << 16 | (long) b.byteAt(0) << 8 | b.byteAt(n - 1);
    }

    static long text(String s) {
        int n = s.length();
        return n == 0 ? 0 : (long) n << 16 | (long) s.charAt(0) << 8 | s.charAt(n - 1);
    }
}
