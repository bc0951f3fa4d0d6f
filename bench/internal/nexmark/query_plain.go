package nexmark

import (
	"strings"

	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/stream"
)

// The queries without state. Each picks its bids, and what it needs of them, in one step.

// eventSum covers numbers and strings of each kind, so that the floor also compares the generators.
func eventSum(e *Event) int64 {
	switch e.Kind {
	case KindBid:
		b := &e.Bid
		return row(b.Auction, b.Bidder, b.Price, b.Time, text(b.Extra))
	case KindAuction:
		a := &e.Auction
		return row(a.ID, a.InitialBid, a.Reserve, a.Time, a.Expires, a.Seller, a.Category, text(a.Extra))
	}
	p := &e.Person
	return row(p.ID, p.Time, text(p.Name), text(p.Extra))
}

func floor(events stream.DataStream[Event], dir string) {
	events.SinkTo(tally.Sink[Event]{Dir: dir, Sum: eventSum}).UID("out")
}

func pick0(e *Event, r *Offer) bool {
	b := &e.Bid
	if e.Kind != KindBid {
		return false
	}
	r.Auction, r.Bidder, r.Price, r.Time, r.Extra = b.Auction, b.Bidder, b.Price, b.Time, b.Extra
	return true
}

func q0(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick0).UID("bids").DataStream, dir)
}

// pick1 gives the price in thousandths of the other currency.
func pick1(e *Event, r *Offer) bool {
	ok := pick0(e, r)
	r.Price *= 908
	return ok
}

func q1(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick1).UID("bids").DataStream, dir)
}

func pick2(e *Event, r *AuctionPrice) bool {
	if e.Kind != KindBid || e.Bid.Auction%123 != 0 {
		return false
	}
	r.Auction, r.Price = e.Bid.Auction, e.Bid.Price
	return true
}

func q2(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick2).UID("bids").DataStream, dir)
}

func pick13(e *Event, r *Enriched) bool {
	if e.Kind != KindBid {
		return false
	}
	b := &e.Bid
	r.Auction, r.Bidder, r.Price, r.Time, r.Value = b.Auction, b.Bidder, b.Price, b.Time, values[b.Auction%int64(len(values))]
	return true
}

func q13(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick13).UID("enriched").DataStream, dir)
}

func pick14(e *Event, r *Computed) bool {
	b := &e.Bid
	price := b.Price * 908
	if e.Kind != KindBid || price <= 1_000_000_000 || price >= 50_000_000_000 {
		return false
	}
	*r = Computed{b.Auction, b.Bidder, price, hours(b.Time), b.Time, b.Extra, int64(strings.Count(b.Extra, "c"))}
	return true
}

func q14(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick14).UID("bids").DataStream, dir)
}

func pick22(e *Event, r *Folders) bool {
	if e.Kind != KindBid {
		return false
	}
	b := &e.Bid
	*r = Folders{b.Auction, b.Bidder, b.Price, b.Channel, folder(b.URL, 3), folder(b.URL, 4), folder(b.URL, 5)}
	return true
}

func q22(events stream.DataStream[Event], dir string) {
	sink(events.FilterMap(pick22).UID("bids").DataStream, dir)
}
