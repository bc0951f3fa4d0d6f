package query

import (
	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/stream"
)

// visit is a bid of queries 15 and 16.
type visit struct {
	Auction, Bidder, Price, Time int64
	Channel                      string
}

// section is the key of queries 15 and 16: a day, of one channel or of all.
type section struct {
	Channel string
	Day     int64
}

func visits(events stream.DataStream[nexmark.Event], byChannel bool) stream.DataStream[nexmark.Update[nexmark.Visits]] {
	return events.FilterMap(func(e *nexmark.Event, r *visit) bool {
		if e.Kind != nexmark.KindBid {
			return false
		}
		b := &e.Bid
		*r = visit{b.Auction, b.Bidder, b.Price, b.Time, ""}
		if byChannel {
			r.Channel = b.Channel
		}
		return true
	}).UID("bids").KeyBy(func(v visit) section { return section{v.Channel, v.Time / nexmark.DayMS} }).
		Process(func() stream.KeyedProcessFunction[section, visit, nexmark.Update[nexmark.Visits]] {
			return &distinct{byChannel: byChannel}
		}).UID("distinct").DataStream
}

func q15(events stream.DataStream[nexmark.Event], dir string) {
	sinkUpdates(visits(events, false), dir)
}

func q16(events stream.DataStream[nexmark.Event], dir string) { sinkUpdates(visits(events, true), dir) }

// distinct counts bids, bidders and auctions by price band: who was seen in which bands is one mask each.
type distinct struct {
	stream.NoTimers[section, nexmark.Update[nexmark.Visits]]
	byChannel         bool
	counts            stream.ValueState[counts]
	bidders, auctions stream.MapState[int64, uint8]
	days              nexmark.Days
}

// counts are the numbers of a nexmark.Visits.
type counts struct {
	Bids, Bidders, Auctions nexmark.Bands
	Latest                  int64 // time of the latest bid
}

func (f *distinct) Open(rt *stream.RuntimeContext[section]) (err error) {
	if f.counts, err = rt.ValueState[counts]("counts"); err != nil {
		return err
	}
	if f.bidders, err = rt.MapState[int64, uint8]("bidders"); err != nil {
		return err
	}
	f.auctions, err = rt.MapState[int64, uint8]("auctions")
	return err
}

func (f *distinct) ProcessElement(ctx *stream.KeyedContext[section], v visit, out *stream.Collector[nexmark.Update[nexmark.Visits]]) error {
	c, found, err := f.counts.Value()
	if err != nil {
		return err
	}
	u := nexmark.Update[nexmark.Visits]{Replaces: found}
	if found {
		f.row(ctx.Key().Channel, v.Time, &c, &u.Old)
	}
	at := nexmark.Band(v.Price)
	c.Bids.Add(true, at)
	c.Latest = max(c.Latest, v.Time)
	if err := see(f.bidders, v.Bidder, at, &c.Bidders); err != nil {
		return err
	}
	if err := see(f.auctions, v.Auction, at, &c.Auctions); err != nil {
		return err
	}
	f.row(ctx.Key().Channel, v.Time, &c, &u.New)
	out.Collect(u)
	return f.counts.Update(c)
}

func (f *distinct) row(channel string, at int64, c *counts, r *nexmark.Visits) {
	r.Channel, r.Day = channel, f.days.Of(at)
	if f.byChannel {
		r.Minute = nexmark.Minute(c.Latest)
	}
	r.Bids, r.Bidders, r.Auctions = c.Bids, c.Bidders, c.Auctions
}

// see notes that id was seen in a band and counts it where that is new.
func see(seen stream.MapState[int64, uint8], id int64, band int, n *nexmark.Bands) error {
	mask, found, err := seen.Get(id)
	if err != nil {
		return err
	}
	bit := uint8(1) << band
	if mask&bit != 0 {
		return nil
	}
	n.Add(!found, band)
	return seen.Put(id, mask|bit)
}

// auctionDay is the key of query 17.
type auctionDay struct{ Auction, Day int64 }

// q17 keeps a row of numbers of each auction and day.
func q17(events stream.DataStream[nexmark.Event], dir string) {
	stats := events.FilterMap(func(e *nexmark.Event, r *price) bool {
		*r = price{e.Bid.Auction, e.Bid.Price, e.Bid.Time}
		return e.Kind == nexmark.KindBid
	}).UID("bids").KeyBy(func(p price) auctionDay { return auctionDay{p.Auction, p.Time / nexmark.DayMS} }).
		Process(func() stream.KeyedProcessFunction[auctionDay, price, nexmark.Update[nexmark.Daily]] { return &daily{} }).UID("daily")
	sinkUpdates(stats.DataStream, dir)
}

type daily struct {
	stream.NoTimers[auctionDay, nexmark.Update[nexmark.Daily]]
	stats stream.ValueState[stats]
	days  nexmark.Days
}

type stats struct {
	Bids          nexmark.Bands
	Min, Max, Sum int64
}

func (s *stats) add(price int64) {
	if s.Bids.All == 0 || price < s.Min {
		s.Min = price
	}
	s.Max = max(s.Max, price)
	s.Sum += price
	s.Bids.Add(true, nexmark.Band(price))
}

func (s *stats) row(auction int64, day string) nexmark.Daily {
	return nexmark.Daily{Auction: auction, Day: day, Bids: s.Bids, Min: s.Min, Max: s.Max, Avg: s.Sum / s.Bids.All, All: s.Sum}
}

func (f *daily) Open(rt *stream.RuntimeContext[auctionDay]) (err error) {
	f.stats, err = rt.ValueState[stats]("stats")
	return err
}

func (f *daily) ProcessElement(_ *stream.KeyedContext[auctionDay], p price, out *stream.Collector[nexmark.Update[nexmark.Daily]]) error {
	s, found, err := f.stats.Value()
	if err != nil {
		return err
	}
	day := f.days.Of(p.Time)
	u := nexmark.Update[nexmark.Daily]{Replaces: found}
	if found {
		u.Old = s.row(p.Auction, day)
	}
	s.add(p.Price)
	u.New = s.row(p.Auction, day)
	out.Collect(u)
	return f.stats.Update(s)
}

// bidOf gives the bids.
func bidOf(e *nexmark.Event, r *nexmark.Bid) bool {
	if e.Kind != nexmark.KindBid {
		return false
	}
	*r = e.Bid
	return true
}

// pair is the key of query 18.
type pair struct{ Bidder, Auction int64 }

// q18 keeps the time of the last bid of each pair; a later one replaces it.
func q18(events stream.DataStream[nexmark.Event], dir string) {
	last := events.FilterMap(bidOf).UID("bids").KeyBy(func(b nexmark.Bid) pair { return pair{b.Bidder, b.Auction} }).
		Process(func() stream.KeyedProcessFunction[pair, nexmark.Bid, nexmark.LastBid] { return &lastBid{} }).UID("last")
	last.SinkTo(tally.Sink[nexmark.LastBid]{Dir: dir, Sum: (*nexmark.LastBid).Sum, Count: (*nexmark.LastBid).Count}).UID("out")
}

type lastBid struct {
	stream.NoTimers[pair, nexmark.LastBid]
	at stream.ValueState[int64]
}

func (f *lastBid) Open(rt *stream.RuntimeContext[pair]) (err error) {
	f.at, err = rt.ValueState[int64]("at")
	return err
}

func (f *lastBid) ProcessElement(_ *stream.KeyedContext[pair], b nexmark.Bid, out *stream.Collector[nexmark.LastBid]) error {
	at, _, err := f.at.Value()
	if err != nil || b.Time < at {
		return err
	}
	out.Collect(nexmark.LastBid{Bid: b, Previous: at})
	return f.at.Update(b.Time)
}

// q19 keeps the highest bids of each auction and, apart from them, their prices in order: most bids are turned down by these alone.
func q19(events stream.DataStream[nexmark.Event], dir string) {
	ranked := events.FilterMap(bidOf).UID("bids").KeyBy(func(b nexmark.Bid) int64 { return b.Auction }).
		Process(func() stream.KeyedProcessFunction[int64, nexmark.Bid, nexmark.Ranked] { return &ranks{} }).UID("ranks")
	ranked.SinkTo(tally.Sink[nexmark.Ranked]{Dir: dir, Sum: (*nexmark.Ranked).Sum, Count: (*nexmark.Ranked).Count}).UID("out")
}

type ranks struct {
	stream.NoTimers[int64, nexmark.Ranked]
	board stream.ValueState[board]
	bids  stream.MapState[uint8, nexmark.Bid] // by slot
}

// board is the prices of an auction's highest bids, and where the bids are.
type board struct {
	N      uint8
	Slots  [nexmark.Tenth]uint8
	Prices [nexmark.Tenth]int64
}

func (f *ranks) Open(rt *stream.RuntimeContext[int64]) (err error) {
	if f.board, err = rt.ValueState[board]("board"); err != nil {
		return err
	}
	f.bids, err = rt.MapState[uint8, nexmark.Bid]("bids")
	return err
}

func (f *ranks) ProcessElement(_ *stream.KeyedContext[int64], bid nexmark.Bid, out *stream.Collector[nexmark.Ranked]) error {
	old, _, err := f.board.Value()
	n := int(old.N)
	if err != nil || n == nexmark.Tenth && bid.Price <= old.Prices[n-1] {
		return err
	}
	b, slot := old, old.N
	if n == nexmark.Tenth {
		n--
		slot = old.Slots[n] // of the bid that drops out
	} else {
		b.N++
	}
	at := n
	for ; at > 0 && b.Prices[at-1] < bid.Price; at-- {
		b.Prices[at], b.Slots[at] = b.Prices[at-1], b.Slots[at-1]
	}
	b.Prices[at], b.Slots[at] = bid.Price, slot
	if err := f.bids.Put(slot, bid); err != nil {
		return err
	}
	for i := at; i < int(b.N); i++ {
		r := nexmark.Ranked{Bid: bid, Rank: int64(i + 1)}
		if i > at {
			if r.Bid, _, err = f.bids.Get(b.Slots[i]); err != nil {
				return err
			}
		}
		if i < int(old.N) {
			r.Previous = old.Prices[i]
		}
		out.Collect(r)
	}
	return f.board.Update(b)
}
