package thalweg.bench;

/** One generated record, a pure function of its number: the same as in bench/jobs/pipe. */
public class Event {
    public long id;
    public long key;
    public long value;
    public long at;
    public String text;

    private static final int TEXTS = 1024;
    private static final int PER_MS = 100;
    private static final int LENGTH = 64;
    private static final String[] TABLE = texts(TEXTS, LENGTH);

    /** So many texts of so many letters each. */
    static String[] texts(int n, int length) {
        String[] all = new String[n];
        for (int i = 0; i < n; i++) {
            char[] c = new char[length];
            long x = i;
            for (int j = 0; j < length; j++) {
                x = mix(x);
                c[j] = (char) ('a' + Long.remainderUnsigned(x, 26));
            }
            all[i] = new String(c);
        }
        return all;
    }

    /** One step of SplitMix64. */
    static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
        x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
        return x ^ x >>> 31;
    }

    static Event make(long n, long keys) {
        long r = mix(n);
        Event e = new Event();
        e.id = n;
        e.key = (r >>> 1) % keys;
        e.value = r & 0xffff;
        e.at = 1735689600000L + n / PER_MS;
        e.text = TABLE[(int) (r >>> 54)];
        return e;
    }
}
