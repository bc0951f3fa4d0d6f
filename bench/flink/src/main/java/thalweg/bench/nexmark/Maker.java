package thalweg.bench.nexmark;

import java.io.Serializable;
import org.apache.flink.core.memory.MemorySegment;
import thalweg.bench.Numbers;

/** Makes events of T, with strings of S, out of their fields. */
interface Maker<S, T> extends Serializable {
    /** The events of a generator, or of a file where there is one. */
    static <S, T> Numbers.Maker<T> events(Maker<S, T> make, long rate, String file) {
        if (file.isEmpty()) {
            return new Generator<>(make, rate);
        }
        return new Replay<>(make, file, rate);
    }

    /** Copies letters. */
    S text(byte[] b, int at, int length);

    /** Reads letters of a file, which does not change. */
    S text(MemorySegment m, int at, int length);

    T person(long id, S name, S email, S card, S city, S state, long time, S extra);

    T auction(long id, S item, S description, long initialBid, long reserve, long time, long expires, long seller, long category, S extra);

    T bid(long auction, long bidder, long price, S channel, S url, long time, S extra);
}
