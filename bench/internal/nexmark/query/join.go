package query

import (
	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/stream"
)

// sale is an auction of query 3.
type sale struct{ Seller, Auction int64 }

// resident is a person of query 3.
type resident struct {
	ID                int64
	Name, City, State string
}

// q3 joins auctions and persons; filters and projections come before the exchange.
func q3(events stream.DataStream[nexmark.Event], dir string) {
	sales := events.FilterMap(func(e *nexmark.Event, r *sale) bool {
		r.Seller, r.Auction = e.Auction.Seller, e.Auction.ID
		return e.Kind == nexmark.KindAuction && e.Auction.Category == 10
	}).UID("sales")
	residents := events.FilterMap(func(e *nexmark.Event, r *resident) bool {
		p := &e.Person
		if e.Kind != nexmark.KindPerson || p.State != "OR" && p.State != "ID" && p.State != "CA" {
			return false
		}
		*r = resident{p.ID, p.Name, p.City, p.State}
		return true
	}).UID("residents")
	joined := sales.KeyBy(func(s sale) int64 { return s.Seller }).Connect(residents.KeyBy(func(r resident) int64 { return r.ID })).
		Process(func() stream.KeyedCoProcessFunction[int64, sale, resident, nexmark.Seller] { return &sellers{} }).UID("join")
	sink(joined.DataStream, dir)
}

// sellers keeps each person, and the auctions of those who are not known (yet).
type sellers struct {
	stream.NoTimers[int64, nexmark.Seller]
	person stream.ValueState[resident]
	early  stream.ListState[int64]
}

func (f *sellers) Open(rt *stream.RuntimeContext[int64]) (err error) {
	if f.person, err = rt.ValueState[resident]("person"); err != nil {
		return err
	}
	f.early, err = rt.ListState[int64]("early")
	return err
}

func (f *sellers) ProcessFirst(_ *stream.KeyedContext[int64], s sale, out *stream.Collector[nexmark.Seller]) error {
	p, known, err := f.person.Value()
	if err != nil {
		return err
	}
	if !known {
		return f.early.Add(s.Auction)
	}
	out.Collect(nexmark.Seller{Name: p.Name, City: p.City, State: p.State, Auction: s.Auction})
	return nil
}

func (f *sellers) ProcessSecond(_ *stream.KeyedContext[int64], p resident, out *stream.Collector[nexmark.Seller]) error {
	early, err := f.early.Get()
	if err != nil {
		return err
	}
	for _, id := range early {
		out.Collect(nexmark.Seller{Name: p.Name, City: p.City, State: p.State, Auction: id})
	}
	if len(early) > 0 {
		if err := f.early.Clear(); err != nil {
			return err
		}
	}
	return f.person.Update(p)
}

// item is an auction of query 4.
type item struct{ ID, Category, Time, Expires int64 }

// price is a bid of query 4.
type price struct{ Auction, Price, Time int64 }

// final is a winning price that changed; Old is 0 for the first.
type final struct{ Category, Old, New int64 }

// q4 keeps one state of each auction, and of each category a sum.
func q4(events stream.DataStream[nexmark.Event], dir string) {
	items := events.FilterMap(func(e *nexmark.Event, r *item) bool {
		a := &e.Auction
		*r = item{a.ID, a.Category, a.Time, a.Expires}
		return e.Kind == nexmark.KindAuction
	}).UID("items")
	prices := events.FilterMap(func(e *nexmark.Event, r *price) bool {
		*r = price{e.Bid.Auction, e.Bid.Price, e.Bid.Time}
		return e.Kind == nexmark.KindBid
	}).UID("prices")
	means := items.KeyBy(func(i item) int64 { return i.ID }).Connect(prices.KeyBy(func(p price) int64 { return p.Auction })).
		Process(func() stream.KeyedCoProcessFunction[int64, item, price, final] { return &winning{} }).UID("winning").
		KeyBy(func(f final) int64 { return f.Category }).
		Process(func() stream.KeyedProcessFunction[int64, final, nexmark.Update[nexmark.CategoryPrice]] {
			return &mean{}
		}).UID("mean")
	sinkUpdates(means.DataStream, dir)
}

// winning keeps the highest price of each auction, and bids that came before it.
type winning struct {
	stream.NoTimers[int64, final]
	best  stream.ValueState[best]
	early stream.ListState[price]
}

type best struct {
	Category, From, To int64
	Price              int64 // 0 for none
}

func (f *winning) Open(rt *stream.RuntimeContext[int64]) (err error) {
	if f.best, err = rt.ValueState[best]("best"); err != nil {
		return err
	}
	f.early, err = rt.ListState[price]("early")
	return err
}

func (b *best) wins(p price) bool { return p.Time >= b.From && p.Time <= b.To && p.Price > b.Price }

func (f *winning) ProcessFirst(_ *stream.KeyedContext[int64], i item, out *stream.Collector[final]) error {
	early, err := f.early.Get()
	if err != nil {
		return err
	}
	b := best{i.Category, i.Time, i.Expires, 0}
	for _, p := range early {
		if b.wins(p) {
			b.Price = p.Price
		}
	}
	if b.Price > 0 {
		out.Collect(final{b.Category, 0, b.Price})
	}
	if len(early) > 0 {
		if err := f.early.Clear(); err != nil {
			return err
		}
	}
	return f.best.Update(b)
}

func (f *winning) ProcessSecond(_ *stream.KeyedContext[int64], p price, out *stream.Collector[final]) error {
	b, known, err := f.best.Value()
	switch {
	case err != nil:
		return err
	case !known:
		return f.early.Add(p)
	case !b.wins(p):
		return nil
	}
	out.Collect(final{b.Category, b.Price, p.Price})
	b.Price = p.Price
	return f.best.Update(b)
}

// mean keeps sum and number of the winning prices of a category.
type mean struct {
	stream.NoTimers[int64, nexmark.Update[nexmark.CategoryPrice]]
	total stream.ValueState[total]
}

type total struct{ Sum, N int64 }

func (f *mean) Open(rt *stream.RuntimeContext[int64]) (err error) {
	f.total, err = rt.ValueState[total]("total")
	return err
}

func (f *mean) ProcessElement(_ *stream.KeyedContext[int64], v final, out *stream.Collector[nexmark.Update[nexmark.CategoryPrice]]) error {
	t, _, err := f.total.Value()
	if err != nil {
		return err
	}
	u := nexmark.Update[nexmark.CategoryPrice]{Replaces: t.N > 0}
	if u.Replaces {
		u.Old = nexmark.CategoryPrice{Category: v.Category, Final: t.Sum / t.N}
	}
	t.Sum += v.New - v.Old
	if v.Old == 0 {
		t.N++
	}
	u.New = nexmark.CategoryPrice{Category: v.Category, Final: t.Sum / t.N}
	out.Collect(u)
	return f.total.Update(t)
}

// offered is an auction of query 20; of one in another category only the id is kept.
type offered struct {
	Wanted bool
	Item   nexmark.Auction
}

// q20 joins bids with their auctions. All auctions are sent, since a bid on one of another category can be dropped at once, where a filter
// before the join, as a planner makes it, keeps such bids for ever.
func q20(events stream.DataStream[nexmark.Event], dir string) {
	items := events.FilterMap(func(e *nexmark.Event, r *offered) bool {
		if e.Kind != nexmark.KindAuction {
			return false
		}
		if r.Wanted = e.Auction.Category == 10; r.Wanted {
			r.Item = e.Auction
		} else {
			r.Item = nexmark.Auction{ID: e.Auction.ID}
		}
		return true
	}).UID("items")
	bids := events.FilterMap(func(e *nexmark.Event, r *nexmark.Bid) bool {
		if e.Kind != nexmark.KindBid {
			return false
		}
		*r = e.Bid
		return true
	}).UID("bids")
	joined := items.KeyBy(func(o offered) int64 { return o.Item.ID }).Connect(bids.KeyBy(func(b nexmark.Bid) int64 { return b.Auction })).
		Process(func() stream.KeyedCoProcessFunction[int64, offered, nexmark.Bid, nexmark.Sold] { return &sold{} }).UID("join")
	sink(joined.DataStream, dir)
}

// sold keeps each auction that is wanted, a mark for each other, and bids that came before their auction.
type sold struct {
	stream.NoTimers[int64, nexmark.Sold]
	item  stream.ValueState[offered]
	early stream.ListState[nexmark.Bid]
}

func (f *sold) Open(rt *stream.RuntimeContext[int64]) (err error) {
	if f.item, err = rt.ValueState[offered]("item"); err != nil {
		return err
	}
	f.early, err = rt.ListState[nexmark.Bid]("early")
	return err
}

func (f *sold) ProcessFirst(_ *stream.KeyedContext[int64], o offered, out *stream.Collector[nexmark.Sold]) error {
	early, err := f.early.Get()
	if err != nil {
		return err
	}
	if o.Wanted {
		for _, b := range early {
			out.Collect(nexmark.Sold{Bid: b, Item: o.Item})
		}
	}
	if len(early) > 0 {
		if err := f.early.Clear(); err != nil {
			return err
		}
	}
	return f.item.Update(o)
}

func (f *sold) ProcessSecond(_ *stream.KeyedContext[int64], b nexmark.Bid, out *stream.Collector[nexmark.Sold]) error {
	o, known, err := f.item.Value()
	switch {
	case err != nil:
		return err
	case !known:
		return f.early.Add(b)
	case o.Wanted:
		out.Collect(nexmark.Sold{Bid: b, Item: o.Item})
	}
	return nil
}
