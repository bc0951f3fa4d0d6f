package thalweg.bench.nexmark;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** SplitMix64: the same few lines in any language give the same numbers. */
final class Rng {
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final long LANES = 0x00ff00ff00ff00ffL;
    private long s;

    void seed(long seed) {
        s = seed;
    }

    long next() {
        s += 0x9E3779B97F4A7C15L;
        return fin(s);
    }

    /** A number in [0, n): the high half of a 32-bit draw times n (n below 2^31). */
    int below(int n) {
        return (int) (((next() >>> 32) * n) >>> 32);
    }

    /** A double in [0, 1). */
    double unit() {
        return (next() >>> 11) * 0x1.0p-53;
    }

    /** Writes k letters at b[at], 8 to a draw; up to 7 bytes more are overwritten. */
    void letters(byte[] b, int at, int k) {
        for (int i = 0; i < k; i += 8) {
            long x = next();
            long even = (x & LANES) * 26 >>> 8 & LANES;
            long odd = (x >>> 8 & LANES) * 26 & ~LANES;
            LONGS.set(b, at + i, (even | odd) + 0x6161616161616161L);
        }
    }

    private static long fin(long z) {
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    static long mix(long x) {
        return fin(x + 0x9E3779B97F4A7C15L);
    }
}
