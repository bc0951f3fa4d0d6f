package thalweg.bench.nexmark;

import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.flink.core.memory.MemorySegment;
import org.apache.flink.core.memory.MemorySegmentFactory;
import thalweg.bench.Numbers;

/** The events of a mapped file, over and over, each pass moved on: the format is in bench/internal/nexmark/file.go. */
final class Replay<S, T> implements Numbers.Maker<T> {
    private static final long PERIOD = 1_000_000;

    private final Maker<S, T> make;
    private final String file;
    private final long rate;

    private transient MappedByteBuffer map; // keeps m valid
    private transient MemorySegment m;
    private transient int start;
    private transient int end;
    private transient int at;
    private transient long persons;
    private transient long auctions;
    private transient long ms;

    Replay(Maker<S, T> make, String file, long rate) {
        this.make = make;
        this.file = file;
        this.rate = rate;
    }

    @Override
    public void open(int shard, int shards, long next) throws IOException {
        try (FileChannel c = FileChannel.open(Path.of(file))) {
            map = c.map(FileChannel.MapMode.READ_ONLY, 0, c.size());
        }
        m = MemorySegmentFactory.wrapOffHeapMemory(map);
        if (m.getLongLittleEndian(8) != rate || m.getLongLittleEndian(16) != shards) {
            throw new IOException(file + " has other parts or another rate");
        }
        start = (int) m.getLongLittleEndian(24 + 8 * shard);
        end = (int) m.getLongLittleEndian(32 + 8 * shard);
        at = start;
        for (long n = shard; n < next; n += shards) { // after a restart
            make(n);
        }
    }

    private int size(int i) {
        return m.getCharLittleEndian(i);
    }

    private long number(int i) {
        return m.getLongLittleEndian(i);
    }

    @Override
    public T make(long n) {
        if (at == end) {
            at = start;
            persons += PERIOD / 50;
            auctions += PERIOD / 50 * 3;
            ms += PERIOD / Math.max(rate / 1000, 1);
        }
        int i = at;
        at += size(i + 2);
        switch (m.get(i)) {
            case 2: {
                int channel = size(i + 4);
                int url = size(i + 6);
                int s = i + 48;
                return make.bid(number(i + 16) + auctions, number(i + 24) + persons, number(i + 32), make.text(m, s, channel),
                        make.text(m, s + channel, url), number(i + 40) + ms, make.text(m, s + channel + url, size(i + 8)));
            }
            case 1: {
                int item = size(i + 4);
                int description = size(i + 6);
                int s = i + 72;
                return make.auction(number(i + 16) + auctions, make.text(m, s, item), make.text(m, s + item, description), number(i + 24),
                        number(i + 32), number(i + 40) + ms, number(i + 48) + ms, number(i + 56) + persons, number(i + 64),
                        make.text(m, s + item + description, size(i + 8)));
            }
            default: {
                int name = i + 32;
                int email = name + size(i + 4);
                int card = email + size(i + 6);
                int city = card + size(i + 8);
                int state = city + size(i + 10);
                int extra = state + size(i + 12);
                return make.person(number(i + 16) + persons, make.text(m, name, email - name), make.text(m, email, card - email),
                        make.text(m, card, city - card), make.text(m, city, state - city), make.text(m, state, extra - state),
                        number(i + 24) + ms, make.text(m, extra, size(i + 14)));
            }
        }
    }
}
