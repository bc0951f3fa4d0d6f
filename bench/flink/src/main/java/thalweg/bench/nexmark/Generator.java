package thalweg.bench.nexmark;

import java.nio.charset.StandardCharsets;
import thalweg.bench.Numbers;

/** The events as pure functions of their numbers: the same as in bench/internal/nexmark. */
final class Generator<S, T> implements Numbers.Maker<T> {
    static final long BASE_MS = 1_735_689_600_000L;
    private static final int TOTAL = 50;
    private static final int AUCTIONS = 3;
    private static final long FIRST_ID = 1000;
    private static final int FIRST_CATEGORY = 10;
    private static final int CATEGORIES = 5;
    private static final int ACTIVE_PEOPLE = 1000;
    private static final int IN_FLIGHT = 100;
    private static final int LEAD = 10;
    private static final int HOT_ID = 100;
    private static final int CHANNELS = 10_000;
    private static final byte[][] FIRST = bytes("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter");
    private static final byte[][] LAST = bytes("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris");
    private static final byte[][] CITY = bytes("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne");
    private static final byte[][] STATE = bytes("AZ", "CA", "ID", "OR", "WA", "WY");
    private static final byte[][] HOT_CHANNEL = bytes("Google", "Facebook", "Baidu", "Apple");

    private final Maker<S, T> make;
    private final long perMs;

    private transient Rng r;
    private transient byte[] buf;
    private transient int len;
    private transient S[] channel;
    private transient S[] url;
    private transient S[] city;
    private transient S[] state;

    /** rate is in events per second of event time, a multiple of 1000. */
    Generator(Maker<S, T> make, long rate) {
        this.make = make;
        this.perMs = Math.max(rate / 1000, 1);
    }

    private static byte[][] bytes(String... s) {
        byte[][] b = new byte[s.length][];
        for (int i = 0; i < b.length; i++) {
            b[i] = s[i].getBytes(StandardCharsets.US_ASCII);
        }
        return b;
    }

    @SuppressWarnings("unchecked")
    private S[] texts(byte[][] all) {
        S[] s = (S[]) new Object[all.length];
        for (int i = 0; i < s.length; i++) {
            s[i] = make.text(all[i], 0, all[i].length);
        }
        return s;
    }

    @Override
    @SuppressWarnings("unchecked")
    public void open(int shard, int shards, long next) {
        r = new Rng();
        buf = new byte[2048];
        city = texts(CITY);
        state = texts(STATE);
        channel = (S[]) new Object[CHANNELS + HOT_CHANNEL.length];
        url = (S[]) new Object[channel.length];
        for (int i = 0; i < channel.length; i++) {
            r.seed(~(long) i);
            len = 0;
            put("https://www.nexmark.com/".getBytes(StandardCharsets.US_ASCII));
            for (int k = 0; k < 3; k++) {
                letters(3 + r.below(3));
                buf[len++] = '/';
            }
            put("item.htm?query=1".getBytes(StandardCharsets.US_ASCII));
            byte[] name = i < CHANNELS ? ("channel-" + i).getBytes(StandardCharsets.US_ASCII) : HOT_CHANNEL[i - CHANNELS];
            if (i < CHANNELS) {
                put(("&channel_id=" + Math.abs((long) Integer.reverse(i))).getBytes(StandardCharsets.US_ASCII));
            }
            url[i] = make.text(buf, 0, len);
            channel[i] = make.text(name, 0, name.length);
        }
    }

    private long ms(long n) {
        return BASE_MS + n / perMs;
    }

    private static long lastPerson(long n) {
        return n / TOTAL;
    }

    private static long lastAuction(long n) {
        long epoch = n / TOTAL;
        long off = n % TOTAL;
        if (off < 1) {
            return (epoch - 1) * AUCTIONS + AUCTIONS - 1;
        }
        return epoch * AUCTIONS + (off > AUCTIONS ? AUCTIONS - 1 : off - 1);
    }

    private long anyPerson(long n) {
        long people = lastPerson(n) + 1;
        long active = Math.min(people, ACTIVE_PEOPLE);
        return people - active + r.below((int) active + LEAD);
    }

    private long anyAuction(long n) {
        long max = Math.max(lastAuction(n), 0);
        long min = Math.max(max - IN_FLIGHT, 0);
        return min + r.below((int) (max - min) + 1 + LEAD);
    }

    private long price() {
        return Math.round(Math.pow(10.0, r.unit() * 6.0) * 100.0);
    }

    private void put(byte[] b) {
        System.arraycopy(b, 0, buf, len, b.length);
        len += b.length;
    }

    private void letters(int k) {
        r.letters(buf, len, k);
        len += k;
    }

    private S word(int longest) {
        int at = len;
        letters(3 + r.below(longest - 3));
        return make.text(buf, at, len - at);
    }

    private S extra(int now, int avg) {
        int at = len;
        if (now <= avg) {
            int d = avg - now;
            int delta = (2 * d + 5) / 10;
            letters(d - delta + (delta == 0 ? 0 : r.below(2 * delta)));
        }
        return make.text(buf, at, len - at);
    }

    @Override
    public T make(long n) {
        r.seed(Rng.mix(n));
        len = 0;
        int off = (int) (n % TOTAL);
        if (off > AUCTIONS) {
            return bid(n);
        }
        return off > 0 ? auction(n) : person(n);
    }

    private T person(long n) {
        put(FIRST[r.below(FIRST.length)]);
        buf[len++] = ' ';
        put(LAST[r.below(LAST.length)]);
        int mail = len;
        letters(3 + r.below(4));
        buf[len++] = '@';
        letters(3 + r.below(2));
        put(new byte[] {'.', 'c', 'o', 'm'});
        int card = len;
        for (int i = 0; i < 4; i++) {
            int d = r.below(10_000);
            if (i > 0) {
                buf[len++] = ' ';
            }
            for (int k = 1000; k > 0; k /= 10) {
                buf[len++] = (byte) ('0' + d / k % 10);
            }
        }
        int end = len;
        int c = r.below(CITY.length);
        int s = r.below(STATE.length);
        S extra = extra(8 + end + 8 + CITY[c].length + STATE[s].length, 200);
        return make.person(FIRST_ID + lastPerson(n), make.text(buf, 0, mail), make.text(buf, mail, card - mail), make.text(buf, card, end - card),
                city[c], state[s], ms(n), extra);
    }

    private T auction(long n) {
        long person = lastPerson(n);
        long seller = r.below(4) > 0 ? person / HOT_ID * HOT_ID : anyPerson(n);
        int category = FIRST_CATEGORY + r.below(CATEGORIES);
        long initial = price();
        long reserve = initial + price();
        long at = ms(n);
        long horizon = ms(n + IN_FLIGHT * TOTAL / AUCTIONS) - at;
        long life = 1 + r.below((int) Math.max(horizon * 2, 1));
        S item = word(20);
        S description = word(100);
        S extra = extra(56 + len, 500);
        return make.auction(FIRST_ID + lastAuction(n), item, description, initial, reserve, at, at + life, FIRST_ID + seller, category, extra);
    }

    private T bid(long n) {
        long auction = r.below(2) > 0 ? Math.max(lastAuction(n), 0) / HOT_ID * HOT_ID : anyAuction(n);
        long bidder = r.below(4) > 0 ? lastPerson(n) / HOT_ID * HOT_ID + 1 : anyPerson(n);
        long price = price();
        int ch = r.below(2) > 0 ? CHANNELS + r.below(4) : r.below(CHANNELS);
        return make.bid(FIRST_ID + auction, FIRST_ID + bidder, price, channel[ch], url[ch], ms(n), extra(32, 100));
    }
}
