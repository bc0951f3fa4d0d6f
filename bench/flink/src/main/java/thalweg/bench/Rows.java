package thalweg.bench;

/** Events and rows of the case whose state is larger than memory: the same as bench/internal/rows. */
public final class Rows {
    private Rows() {}

    private static final int TEXTS = 4096;
    private static final int LENGTH = 192;
    private static final long STRIDE = 2654435761L;
    private static final long HOT_EVENTS = 1000;
    private static final String[] TABLE = Event.texts(TEXTS, LENGTH);

    /** One generated record. */
    public static class In {
        public long key;
    }

    /** A key's state. */
    public static class Row {
        public long count;
        public long check;
        public String text;

        Result update(long key) {
            if (count > 0) {
                check += part(text);
            }
            count++;
            text = TABLE[(int) Long.remainderUnsigned(Event.mix(key + count * 31), TEXTS)];
            Result r = new Result();
            r.key = key;
            r.count = count;
            r.check = check;
            return r;
        }
    }

    /** A row after an event. */
    public static class Result {
        public long key;
        public long count;
        public long check;

        long sum() {
            return Event.mix(key + count * 31) * (check | 1);
        }
    }

    static In make(long n, long keys, long hot) {
        In e = new In();
        if (n < keys) {
            e.key = n * STRIDE % keys;
            return e;
        }
        long r = Event.mix(n) >>> 1;
        e.key = hot > 0 ? ((n - keys) / (hot * HOT_EVENTS) * hot + r % hot) % keys * STRIDE % keys : r % keys;
        return e;
    }

    private static long part(String s) {
        return (long) s.charAt(0) + ((long) s.charAt(LENGTH / 2) << 8) + ((long) s.charAt(LENGTH - 1) << 16);
    }
}
