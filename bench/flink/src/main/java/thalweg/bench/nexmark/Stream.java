package thalweg.bench.nexmark;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.AllWindowFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import thalweg.bench.Args;
import thalweg.bench.Numbers;
import thalweg.bench.Tally;

/** --query Q --events N --rate R --file FILE --result DIR: the algorithms of bench/internal/nexmark with Flink's DataStream API. */
public final class Stream {
    private static final Duration WINDOW = Duration.ofSeconds(10);

    private Stream() {}

    public static void main(String[] argv) throws Exception {
        Args a = new Args(argv);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        String query = a.get("query", "q0");
        String dir = a.get("result", "");
        DataStream<Pojo.Event> events = env.fromSource(
                new Numbers<>(Maker.events(new Pojo.Make(), a.number("rate", 100_000), a.get("file", "")), a.number("events", 1_000_000), 0),
                query.equals("floor") ? WatermarkStrategy.noWatermarks()
                        : WatermarkStrategy.<Pojo.Event>forBoundedOutOfOrderness(Duration.ofSeconds(4)).withTimestampAssigner((e, t) -> e.time()),
                "events", Types.POJO(Pojo.Event.class)).uid("events");
        switch (query) {
            case "floor":
                events.sinkTo(new Tally<Pojo.Event>(dir, Pojo.Event::sum)).uid("out");
                break;
            case "q0":
                q0(events, dir);
                break;
            case "q2":
                q2(events, dir);
                break;
            case "q5":
                q5(events, dir);
                break;
            case "q8":
                q8(events, dir);
                break;
            case "q11":
                q11(events, dir);
                break;
            case "q18":
                q18(events, dir);
                break;
            case "q20":
                q20(events, dir);
                break;
            default:
                throw new IllegalArgumentException("no query " + query);
        }
        env.execute(query);
    }

    private static DataStream<Pojo.Bid> bids(DataStream<Pojo.Event> events) {
        return events.filter(e -> e.kind == 2).uid("only-bids").map(e -> e.bid).returns(Pojo.Bid.class).uid("bids");
    }

    /** A bid without its channel. */
    public static class Offer {
        public long auction;
        public long bidder;
        public long price;
        public long time;
        public String extra;

        long sum() {
            return Checksum.row(auction, bidder, price, time, Checksum.text(extra));
        }
    }

    private static void q0(DataStream<Pojo.Event> events, String dir) {
        bids(events).map(b -> {
            Offer o = new Offer();
            o.auction = b.auction;
            o.bidder = b.bidder;
            o.price = b.price;
            o.time = b.time;
            o.extra = b.extra;
            return o;
        }).returns(Offer.class).uid("offers").sinkTo(new Tally<Offer>(dir, Offer::sum)).uid("out");
    }

    /** Two numbers. */
    public static class Two {
        public long id;
        public long n;

        public Two() {}

        Two(long id, long n) {
            this.id = id;
            this.n = n;
        }

        long sum() {
            return Checksum.row(id, n);
        }
    }

    private static void q2(DataStream<Pojo.Event> events, String dir) {
        bids(events).filter(b -> b.auction % 123 == 0).uid("some").map(b -> new Two(b.auction, b.price)).returns(Two.class).uid("prices")
                .sinkTo(new Tally<Two>(dir, Two::sum)).uid("out");
    }

    private static final class Counter implements AggregateFunction<Long, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long x, Long n) {
            return n + 1;
        }

        @Override
        public Long getResult(Long n) {
            return n;
        }

        @Override
        public Long merge(Long x, Long y) {
            return x + y;
        }
    }

    /** The auctions with the most bids. */
    public static class Tops {
        public long n;
        public List<Long> auctions = new ArrayList<>();

        void add(long auction, long bids) {
            if (bids > n) {
                n = bids;
                auctions.clear();
            }
            if (bids == n) {
                auctions.add(auction);
            }
        }
    }

    private static void q5(DataStream<Pojo.Event> events, String dir) {
        Duration slide = Duration.ofSeconds(2);
        bids(events).map(b -> b.auction).returns(Types.LONG).uid("auctions").keyBy(x -> x, Types.LONG)
                .window(SlidingEventTimeWindows.of(WINDOW, slide))
                .aggregate(new Counter(), new ProcessWindowFunction<Long, Two, Long, TimeWindow>() {
                    @Override
                    public void process(Long auction, Context c, Iterable<Long> n, Collector<Two> out) {
                        out.collect(new Two(auction, n.iterator().next()));
                    }
                }).uid("counts")
                .windowAll(TumblingEventTimeWindows.of(slide))
                .aggregate(new AggregateFunction<Two, Tops, Tops>() {
                    @Override
                    public Tops createAccumulator() {
                        return new Tops();
                    }

                    @Override
                    public Tops add(Two x, Tops t) {
                        t.add(x.id, x.n);
                        return t;
                    }

                    @Override
                    public Tops getResult(Tops t) {
                        return t;
                    }

                    @Override
                    public Tops merge(Tops a, Tops b) {
                        for (long id : b.auctions) {
                            a.add(id, b.n);
                        }
                        return a;
                    }
                }, new AllWindowFunction<Tops, Two, TimeWindow>() {
                    @Override
                    public void apply(TimeWindow w, Iterable<Tops> in, Collector<Two> out) {
                        Tops t = in.iterator().next();
                        for (long id : t.auctions) {
                            out.collect(new Two(id, t.n));
                        }
                    }
                }).uid("most")
                .sinkTo(new Tally<Two>(dir, Two::sum)).uid("out");
    }

    /** A person who registers, by name, or who sells. */
    public static class Appearance {
        public long id;
        public String name = "";
        public boolean sells;
    }

    /** A person who registered and sold in one window. */
    public static class NewSeller {
        public long id;
        public String name;
        public long start;

        long sum() {
            return Checksum.row(id, Checksum.text(name), start);
        }
    }

    private static void q8(DataStream<Pojo.Event> events, String dir) {
        events.filter(e -> e.kind != 2).uid("no-bids").map(e -> {
            Appearance a = new Appearance();
            if (e.kind == 0) {
                a.id = e.person.id;
                a.name = e.person.name;
            } else {
                a.id = e.auction.seller;
                a.sells = true;
            }
            return a;
        }).returns(Appearance.class).uid("persons").keyBy(a -> a.id, Types.LONG).window(TumblingEventTimeWindows.of(WINDOW))
                .aggregate(new AggregateFunction<Appearance, Appearance, Appearance>() {
                    @Override
                    public Appearance createAccumulator() {
                        return new Appearance();
                    }

                    @Override
                    public Appearance add(Appearance x, Appearance a) {
                        if (x.sells) {
                            a.sells = true;
                        } else {
                            a.name = x.name;
                        }
                        return a;
                    }

                    @Override
                    public Appearance getResult(Appearance a) {
                        return a;
                    }

                    @Override
                    public Appearance merge(Appearance a, Appearance b) {
                        if (!b.name.isEmpty()) {
                            a.name = b.name;
                        }
                        a.sells |= b.sells;
                        return a;
                    }
                }, new ProcessWindowFunction<Appearance, NewSeller, Long, TimeWindow>() {
                    @Override
                    public void process(Long id, Context c, Iterable<Appearance> in, Collector<NewSeller> out) {
                        Appearance a = in.iterator().next();
                        if (a.sells && !a.name.isEmpty()) {
                            NewSeller s = new NewSeller();
                            s.id = id;
                            s.name = a.name;
                            s.start = c.window().getStart();
                            out.collect(s);
                        }
                    }
                }).uid("meet").sinkTo(new Tally<NewSeller>(dir, NewSeller::sum)).uid("out");
    }

    /** The bids of a session. */
    public static class Session {
        public long bidder;
        public long n;
        public long start;
        public long end;

        long sum() {
            return Checksum.row(bidder, n, start, end);
        }
    }

    private static void q11(DataStream<Pojo.Event> events, String dir) {
        bids(events).map(b -> b.bidder).returns(Types.LONG).uid("bidders").keyBy(x -> x, Types.LONG).window(EventTimeSessionWindows.withGap(WINDOW))
                .aggregate(new Counter(), new ProcessWindowFunction<Long, Session, Long, TimeWindow>() {
                    @Override
                    public void process(Long bidder, Context c, Iterable<Long> n, Collector<Session> out) {
                        Session s = new Session();
                        s.bidder = bidder;
                        s.n = n.iterator().next();
                        s.start = c.window().getStart();
                        s.end = c.window().getEnd();
                        out.collect(s);
                    }
                }).uid("counts").sinkTo(new Tally<Session>(dir, Session::sum)).uid("out");
    }

    /** A bid, and the time of the one that it replaces; 0 for none. */
    public static class LastBid {
        public Pojo.Bid bid;
        public long previous;

        long sum() {
            long s = Checksum.row(bid.auction, bid.bidder, bid.time);
            return previous == 0 ? s : s - Checksum.row(bid.auction, bid.bidder, previous);
        }
    }

    private static void q18(DataStream<Pojo.Event> events, String dir) {
        bids(events).keyBy(b -> Tuple2.of(b.bidder, b.auction), Types.TUPLE(Types.LONG, Types.LONG))
                .process(new KeyedProcessFunction<Tuple2<Long, Long>, Pojo.Bid, LastBid>() {
                    private transient ValueState<Long> at;

                    @Override
                    public void open(OpenContext c) {
                        at = getRuntimeContext().getState(new ValueStateDescriptor<>("at", Types.LONG));
                    }

                    @Override
                    public void processElement(Pojo.Bid b, Context c, Collector<LastBid> out) throws Exception {
                        Long last = at.value();
                        if (last != null && b.time < last) {
                            return;
                        }
                        LastBid l = new LastBid();
                        l.bid = b;
                        l.previous = last == null ? 0 : last;
                        out.collect(l);
                        at.update(b.time);
                    }
                }).uid("last").sinkTo(new Tally<LastBid>(dir, LastBid::sum, l -> l.previous == 0 ? 1 : 0)).uid("out");
    }

    /** An auction of query 20; of one in another category only the id is kept. */
    public static class Offered {
        public boolean wanted;
        public long id;
        public Pojo.Auction item;
    }

    /** A bid with its auction. */
    public static class Sold {
        public Pojo.Bid bid;
        public Pojo.Auction item;

        long sum() {
            return Checksum.row(bid.auction, bid.bidder, bid.price, Checksum.text(bid.channel), Checksum.text(bid.url), bid.time,
                    Checksum.text(bid.extra), Checksum.text(item.item), Checksum.text(item.description), item.initialBid, item.reserve, item.time,
                    item.expires, item.seller, item.category, Checksum.text(item.extra));
        }
    }

    private static void q20(DataStream<Pojo.Event> events, String dir) {
        DataStream<Offered> items = events.filter(e -> e.kind == 1).uid("only-items").map(e -> {
            Offered o = new Offered();
            o.id = e.auction.id;
            o.wanted = e.auction.category == 10;
            o.item = o.wanted ? e.auction : null;
            return o;
        }).returns(Offered.class).uid("items");
        items.keyBy(o -> o.id, Types.LONG).connect(bids(events).keyBy(b -> b.auction, Types.LONG))
                .process(new KeyedCoProcessFunction<Long, Offered, Pojo.Bid, Sold>() {
                    private transient ValueState<Offered> item;
                    private transient ListState<Pojo.Bid> early;

                    @Override
                    public void open(OpenContext c) {
                        item = getRuntimeContext().getState(new ValueStateDescriptor<>("item", Types.POJO(Offered.class)));
                        early = getRuntimeContext().getListState(new ListStateDescriptor<>("early", Types.POJO(Pojo.Bid.class)));
                    }

                    private void emit(Pojo.Bid b, Offered o, Collector<Sold> out) {
                        Sold s = new Sold();
                        s.bid = b;
                        s.item = o.item;
                        out.collect(s);
                    }

                    @Override
                    public void processElement1(Offered o, Context c, Collector<Sold> out) throws Exception {
                        Iterable<Pojo.Bid> bids = early.get();
                        if (bids != null) {
                            for (Pojo.Bid b : bids) {
                                if (o.wanted) {
                                    emit(b, o, out);
                                }
                            }
                            early.clear();
                        }
                        item.update(o);
                    }

                    @Override
                    public void processElement2(Pojo.Bid b, Context c, Collector<Sold> out) throws Exception {
                        Offered o = item.value();
                        if (o == null) {
                            early.add(b);
                        } else if (o.wanted) {
                            emit(b, o, out);
                        }
                    }
                }).uid("join").sinkTo(new Tally<Sold>(dir, Sold::sum)).uid("out");
    }
}
