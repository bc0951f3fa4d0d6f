package thalweg.bench.nexmark;

import org.apache.flink.core.memory.MemorySegment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryStringData;
import thalweg.bench.Numbers;

/** Events as rows of the table: kind, person, auction, bid. Strings of a file are not copied. */
final class Rows implements Maker<StringData, RowData> {
    private transient MemorySegment last;
    private transient MemorySegment[] segments;

    /** The source of a table or of a floor. */
    static Numbers<RowData> source(long events, long rate, String file) {
        return new Numbers<>(Maker.events(new Rows(), rate, file), events, 0);
    }

    @Override
    public StringData text(byte[] b, int at, int length) {
        return StringData.fromBytes(java.util.Arrays.copyOfRange(b, at, at + length));
    }

    @Override
    public StringData text(MemorySegment m, int at, int length) {
        if (last != m) {
            last = m;
            segments = new MemorySegment[] {m};
        }
        return BinaryStringData.fromAddress(segments, at, length);
    }

    private static RowData event(int kind, RowData part) {
        GenericRowData e = new GenericRowData(4);
        e.setField(0, kind);
        e.setField(kind + 1, part);
        return e;
    }

    @Override
    public RowData person(long id, StringData name, StringData email, StringData card, StringData city, StringData state, long time, StringData extra) {
        return event(0, GenericRowData.of(id, name, email, card, city, state, TimestampData.fromEpochMillis(time), extra));
    }

    @Override
    public RowData auction(long id, StringData item, StringData description, long initialBid, long reserve, long time, long expires, long seller,
            long category, StringData extra) {
        return event(1, GenericRowData.of(id, item, description, initialBid, reserve, TimestampData.fromEpochMillis(time),
                TimestampData.fromEpochMillis(expires), seller, category, extra));
    }

    @Override
    public RowData bid(long auction, long bidder, long price, StringData channel, StringData url, long time, StringData extra) {
        return event(2, GenericRowData.of(auction, bidder, price, channel, url, TimestampData.fromEpochMillis(time), extra));
    }

    /** An event's part in the floor's checksum. */
    static long sum(RowData e) {
        int kind = e.getInt(0);
        switch (kind) {
            case 2: {
                RowData b = e.getRow(3, 7);
                return Checksum.row(b.getLong(0), b.getLong(1), b.getLong(2), b.getTimestamp(5, 3).getMillisecond(), Checksum.text(b.getString(6)));
            }
            case 1: {
                RowData a = e.getRow(2, 10);
                return Checksum.row(a.getLong(0), a.getLong(3), a.getLong(4), a.getTimestamp(5, 3).getMillisecond(),
                        a.getTimestamp(6, 3).getMillisecond(), a.getLong(7), a.getLong(8), Checksum.text(a.getString(9)));
            }
            default: {
                RowData p = e.getRow(1, 8);
                return Checksum.row(p.getLong(0), p.getTimestamp(6, 3).getMillisecond(), Checksum.text(p.getString(1)), Checksum.text(p.getString(7)));
            }
        }
    }
}
