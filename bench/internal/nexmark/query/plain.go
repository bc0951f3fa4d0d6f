package query

import (
	"strings"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/stream"
)

// The queries without state. Each picks its bids, and what it needs of them, in one step.

func floor(events stream.DataStream[nexmark.Event], dir string) {
	events.SinkTo(tally.Sink[nexmark.Event]{Dir: dir, Sum: (*nexmark.Event).Sum}).UID("out")
}

func pick0(e *nexmark.Event, r *nexmark.Offer) bool {
	b := &e.Bid
	if e.Kind != nexmark.KindBid {
		return false
	}
	r.Auction, r.Bidder, r.Price, r.Time, r.Extra = b.Auction, b.Bidder, b.Price, b.Time, b.Extra
	return true
}

func q0(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick0).UID("bids").DataStream, dir)
}

// pick1 gives the price in thousandths of the other currency.
func pick1(e *nexmark.Event, r *nexmark.Offer) bool {
	ok := pick0(e, r)
	r.Price *= 908
	return ok
}

func q1(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick1).UID("bids").DataStream, dir)
}

func pick2(e *nexmark.Event, r *nexmark.AuctionPrice) bool {
	if e.Kind != nexmark.KindBid || e.Bid.Auction%123 != 0 {
		return false
	}
	r.Auction, r.Price = e.Bid.Auction, e.Bid.Price
	return true
}

func q2(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick2).UID("bids").DataStream, dir)
}

func pick13(e *nexmark.Event, r *nexmark.Enriched) bool {
	if e.Kind != nexmark.KindBid {
		return false
	}
	b := &e.Bid
	r.Auction, r.Bidder, r.Price, r.Time, r.Value = b.Auction, b.Bidder, b.Price, b.Time, nexmark.Values[b.Auction%int64(len(nexmark.Values))]
	return true
}

func q13(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick13).UID("enriched").DataStream, dir)
}

func pick14(e *nexmark.Event, r *nexmark.Computed) bool {
	b := &e.Bid
	price := b.Price * 908
	if e.Kind != nexmark.KindBid || price <= 1_000_000_000 || price >= 50_000_000_000 {
		return false
	}
	*r = nexmark.Computed{Auction: b.Auction, Bidder: b.Bidder, Price: price, Hours: nexmark.Hours(b.Time), Time: b.Time, Extra: b.Extra, Count: int64(strings.Count(b.Extra, "c"))}
	return true
}

func q14(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick14).UID("bids").DataStream, dir)
}

func pick22(e *nexmark.Event, r *nexmark.Folders) bool {
	if e.Kind != nexmark.KindBid {
		return false
	}
	b := &e.Bid
	*r = nexmark.Folders{Auction: b.Auction, Bidder: b.Bidder, Price: b.Price, Channel: b.Channel,
		First: nexmark.Folder(b.URL, 3), Second: nexmark.Folder(b.URL, 4), Third: nexmark.Folder(b.URL, 5)}
	return true
}

func q22(events stream.DataStream[nexmark.Event], dir string) {
	sink(events.FilterMap(pick22).UID("bids").DataStream, dir)
}
