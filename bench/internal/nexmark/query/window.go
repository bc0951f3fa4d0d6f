package query

import (
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/stream"
)

// number is a record of one number, which counts go by.
type number struct{ N int64 }

func bidAuction(e *nexmark.Event, r *number) bool {
	r.N = e.Bid.Auction
	return e.Kind == nexmark.KindBid
}

func bidBidder(e *nexmark.Event, r *number) bool {
	r.N = e.Bid.Bidder
	return e.Kind == nexmark.KindBid
}

func (n number) key() int64 { return n.N }

// top keeps the auctions with the most bids.
type top struct{}

// tops is its accumulator.
type tops struct {
	Num      int64
	Auctions []int64
}

func (top) Create() tops       { return tops{} }
func (top) Result(a tops) tops { return a }

func (top) Add(a *tops, c nexmark.AuctionCount) {
	if c.Num > a.Num {
		a.Num, a.Auctions = c.Num, a.Auctions[:0]
	}
	if c.Num == a.Num {
		a.Auctions = append(a.Auctions, c.Auction)
	}
}

func (top) Merge(a, b tops) tops {
	for _, id := range b.Auctions {
		top{}.Add(&a, nexmark.AuctionCount{Auction: id, Num: b.Num})
	}
	return a
}

// q5: bids of each auction in sliding windows, and of each window the auctions with the most.
func q5(events stream.DataStream[nexmark.Event], dir string) {
	slide := 2 * time.Second
	counts := events.FilterMap(bidAuction).UID("bids").KeyBy(number.key).Window(stream.SlidingEventTime(nexmark.Window, slide)).
		Aggregate(stream.Count[number](), func(auction int64, _ stream.TimeWindow, n int64) nexmark.AuctionCount {
			return nexmark.AuctionCount{Auction: auction, Num: n}
		}).UID("counts")
	best := counts.WindowAll(stream.TumblingEventTime(slide)).
		Aggregate(top{}, func(_ stream.TimeWindow, t tops) tops { return t }).UID("most").
		FlatMap(func(t tops, out *stream.Collector[nexmark.AuctionCount]) error {
			for _, id := range t.Auctions {
				out.Collect(nexmark.AuctionCount{Auction: id, Num: t.Num})
			}
			return nil
		}).UID("auctions")
	sink(best.DataStream, dir)
}

// highest keeps the highest bids.
type highest struct{}

// Copies says that Add copies what it keeps.
func (highest) Copies() bool { return true }

func (highest) Create() []nexmark.Offer                  { return nil }
func (highest) Result(a []nexmark.Offer) []nexmark.Offer { return a }
func (highest) Merge(a, b []nexmark.Offer) []nexmark.Offer {
	for _, o := range b {
		highest{}.Add(&a, o)
	}
	return a
}

func (highest) Add(a *[]nexmark.Offer, o nexmark.Offer) {
	switch {
	case len(*a) == 0 || o.Price > (*a)[0].Price:
		*a = (*a)[:0]
	case o.Price < (*a)[0].Price:
		return
	}
	o.Extra = strings.Clone(o.Extra)
	*a = append(*a, o)
}

// q7: the highest bids of some of the auctions, then the highest of these, so that few records go to the one subtask that sees all.
func q7(events stream.DataStream[nexmark.Event], dir string) {
	emit := func(os []nexmark.Offer, out *stream.Collector[nexmark.Offer]) error {
		for _, o := range os {
			out.Collect(o)
		}
		return nil
	}
	some := events.FilterMap(pick0).UID("bids").KeyBy(func(o nexmark.Offer) int64 { return o.Auction & 15 }).
		Window(stream.TumblingEventTime(nexmark.Window)).
		Aggregate(highest{}, func(_ int64, _ stream.TimeWindow, os []nexmark.Offer) []nexmark.Offer { return os }).UID("some").
		FlatMap(emit).UID("candidates")
	all := some.WindowAll(stream.TumblingEventTime(nexmark.Window)).
		Aggregate(highest{}, func(_ stream.TimeWindow, os []nexmark.Offer) []nexmark.Offer { return os }).UID("all").
		FlatMap(emit).UID("highest")
	sink(all.DataStream, dir)
}

// appearance is a person who registers, by name, or who sells.
type appearance struct {
	ID    int64
	Name  string
	Sells bool
}

func appear(e *nexmark.Event, r *appearance) bool {
	switch e.Kind {
	case nexmark.KindPerson:
		*r = appearance{e.Person.ID, e.Person.Name, false}
	case nexmark.KindAuction:
		*r = appearance{e.Auction.Seller, "", true}
	default:
		return false
	}
	return true
}

// meeting puts the appearances of one person together.
type meeting struct{}

func (meeting) Create() appearance { return appearance{} }

func (meeting) Add(a *appearance, v appearance) {
	if v.Sells {
		a.Sells = true
	} else {
		a.Name = v.Name
	}
}

func (meeting) Result(a appearance) appearance { return a }

func (m meeting) Merge(a, b appearance) appearance {
	if b.Name != "" {
		a.Name = b.Name
	}
	a.Sells = a.Sells || b.Sells
	return a
}

// q8: persons and sellers in one window, and of these who is both.
func q8(events stream.DataStream[nexmark.Event], dir string) {
	both := events.FilterMap(appear).UID("persons").KeyBy(func(a appearance) int64 { return a.ID }).
		Window(stream.TumblingEventTime(nexmark.Window)).
		Aggregate(meeting{}, func(id int64, w stream.TimeWindow, a appearance) nexmark.NewSeller {
			if !a.Sells || a.Name == "" {
				return nexmark.NewSeller{}
			}
			return nexmark.NewSeller{ID: id, Name: a.Name, Start: w.Start.UnixMilli()}
		}).UID("meet").Filter(func(s nexmark.NewSeller) bool { return s.ID != 0 }).UID("both")
	sink(both.DataStream, dir)
}

func countBids(events stream.DataStream[nexmark.Event], a stream.WindowAssigner) stream.DataStream[nexmark.BidderCount] {
	return events.FilterMap(bidBidder).UID("bids").KeyBy(number.key).Window(a).
		Aggregate(stream.Count[number](), func(bidder int64, w stream.TimeWindow, n int64) nexmark.BidderCount {
			return nexmark.BidderCount{Bidder: bidder, Bids: n, Start: w.Start.UnixMilli(), End: w.End.UnixMilli()}
		}).UID("counts").DataStream
}

// q11 counts in sessions.
func q11(events stream.DataStream[nexmark.Event], dir string) {
	sink(countBids(events, stream.EventTimeSession(nexmark.Window)), dir)
}

// q12 counts by the clock: nobody knows the rows, only how many bids they are of.
func q12(events stream.DataStream[nexmark.Event], dir string) {
	countBids(events, stream.TumblingProcessingTime(nexmark.Window)).
		SinkTo(tally.Sink[nexmark.BidderCount]{Dir: dir, Sum: func(*nexmark.BidderCount) int64 { return 0 }, Count: func(r *nexmark.BidderCount) int64 { return r.Bids }}).UID("out")
}
