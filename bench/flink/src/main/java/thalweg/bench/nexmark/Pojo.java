package thalweg.bench.nexmark;

import java.nio.charset.StandardCharsets;
import org.apache.flink.core.memory.MemorySegment;

/** Events as Flink's users have them. */
public final class Pojo {
    private Pojo() {}

    /** One event: the part that kind names (0 person, 1 auction, 2 bid) is set. */
    public static class Event {
        public int kind;
        public Person person;
        public Auction auction;
        public Bid bid;

        long time() {
            return kind == 2 ? bid.time : kind == 1 ? auction.time : person.time;
        }

        long sum() {
            switch (kind) {
                case 2:
                    return Checksum.row(bid.auction, bid.bidder, bid.price, bid.time, Checksum.text(bid.extra));
                case 1:
                    return Checksum.row(auction.id, auction.initialBid, auction.reserve, auction.time, auction.expires, auction.seller,
                            auction.category, Checksum.text(auction.extra));
                default:
                    return Checksum.row(person.id, person.time, Checksum.text(person.name), Checksum.text(person.extra));
            }
        }
    }

    /** Who sells and bids. */
    public static class Person {
        public long id;
        public long time;
        public String name;
        public String email;
        public String card;
        public String city;
        public String state;
        public String extra;
    }

    /** What is sold. */
    public static class Auction {
        public long id;
        public long initialBid;
        public long reserve;
        public long time;
        public long expires;
        public long seller;
        public long category;
        public String item;
        public String description;
        public String extra;
    }

    /** An offer. */
    public static class Bid {
        public long auction;
        public long bidder;
        public long price;
        public long time;
        public String channel;
        public String url;
        public String extra;
    }

    /** Makes events. */
    static final class Make implements Maker<String, Event> {
        private final byte[] room = new byte[1024];

        @Override
        public String text(byte[] b, int at, int length) {
            return new String(b, at, length, StandardCharsets.ISO_8859_1);
        }

        @Override
        public String text(MemorySegment m, int at, int length) {
            m.get(at, room, 0, length);
            return new String(room, 0, length, StandardCharsets.ISO_8859_1);
        }

        @Override
        public Event person(long id, String name, String email, String card, String city, String state, long time, String extra) {
            Person p = new Person();
            p.id = id;
            p.time = time;
            p.name = name;
            p.email = email;
            p.card = card;
            p.city = city;
            p.state = state;
            p.extra = extra;
            Event e = new Event();
            e.person = p;
            return e;
        }

        @Override
        public Event auction(long id, String item, String description, long initialBid, long reserve, long time, long expires, long seller,
                long category, String extra) {
            Auction a = new Auction();
            a.id = id;
            a.initialBid = initialBid;
            a.reserve = reserve;
            a.time = time;
            a.expires = expires;
            a.seller = seller;
            a.category = category;
            a.item = item;
            a.description = description;
            a.extra = extra;
            Event e = new Event();
            e.kind = 1;
            e.auction = a;
            return e;
        }

        @Override
        public Event bid(long auction, long bidder, long price, String channel, String url, long time, String extra) {
            Bid b = new Bid();
            b.auction = auction;
            b.bidder = bidder;
            b.price = price;
            b.time = time;
            b.channel = channel;
            b.url = url;
            b.extra = extra;
            Event e = new Event();
            e.kind = 2;
            e.bid = b;
            return e;
        }
    }
}
