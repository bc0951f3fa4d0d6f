package nexmark

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// Expected computes a query's result the plain way: one thread, whole maps, event by event in the order of their numbers.
func Expected(name string, events, rate int64, replay bool) (tally.Tally, error) {
	q, ok := queries[name]
	if !ok {
		return tally.Tally{}, Unknown(name)
	}
	return q.expected(input{events, rate, replay}), nil
}

// input is the events of a run.
type input struct {
	events, rate int64
	replay       bool
}

// all calls fn for each event.
func (in input) all(fn func(e *Event)) {
	g := NewGenerator(in.rate)
	var e Event
	for n := range in.events {
		g.Reset()
		if in.replay {
			g.Fill(n%Period, &e)
			e.move(moves(n/Period, in.rate))
		} else {
			g.Fill(n, &e)
		}
		fn(&e)
	}
}

func (in input) bids(fn func(b *Bid)) {
	in.all(func(e *Event) {
		if e.Kind == KindBid {
			fn(&e.Bid)
		}
	})
}

func (in input) auctions(fn func(a *Auction)) {
	in.all(func(e *Event) {
		if e.Kind == KindAuction {
			fn(&e.Auction)
		}
	})
}

func (in input) persons(fn func(p *Person)) {
	in.all(func(e *Event) {
		if e.Kind == KindPerson {
			fn(&e.Person)
		}
	})
}

func expectFloor(in input) (t tally.Tally) {
	in.all(func(e *Event) { t.Add(1, e.Sum()) })
	return t
}

func expect0(in input) (t tally.Tally) {
	in.bids(func(b *Bid) { t.Add(1, (&Offer{b.Auction, b.Bidder, b.Price, b.Time, b.Extra}).Sum()) })
	return t
}

func expect1(in input) (t tally.Tally) {
	in.bids(func(b *Bid) { t.Add(1, (&Offer{b.Auction, b.Bidder, b.Price * 908, b.Time, b.Extra}).Sum()) })
	return t
}

func expect2(in input) (t tally.Tally) {
	in.bids(func(b *Bid) {
		if b.Auction%123 == 0 {
			t.Add(1, (&AuctionPrice{b.Auction, b.Price}).Sum())
		}
	})
	return t
}

func expect3(in input) (t tally.Tally) {
	known := map[int64]Seller{}
	in.persons(func(p *Person) {
		switch p.State {
		case "OR", "ID", "CA":
			known[p.ID] = Seller{strings.Clone(p.Name), p.City, p.State, 0}
		}
	})
	in.auctions(func(a *Auction) {
		if s, ok := known[a.Seller]; ok && a.Category == 10 {
			s.Auction = a.ID
			t.Add(1, s.Sum())
		}
	})
	return t
}

func expect4(in input) (t tally.Tally) {
	type open struct{ category, from, to, best int64 }
	all := map[int64]*open{}
	in.auctions(func(a *Auction) { all[a.ID] = &open{a.Category, a.Time, a.Expires, 0} })
	in.bids(func(b *Bid) {
		if o := all[b.Auction]; o != nil && b.Time >= o.from && b.Time <= o.to {
			o.best = max(o.best, b.Price)
		}
	})
	sum, n := map[int64]int64{}, map[int64]int64{}
	for _, o := range all {
		if o.best > 0 {
			sum[o.category] += o.best
			n[o.category]++
		}
	}
	for c := range sum {
		t.Add(1, (&CategoryPrice{c, sum[c] / n[c]}).Sum())
	}
	return t
}

// expect5 counts by steps of 2 s; a window is five of them.
func expect5(in input) (t tally.Tally) {
	const slide, steps = 2000, 5
	var recent [steps]map[int64]int64 // the last steps, by step modulo five
	emit := func() {
		counts := map[int64]int64{}
		for _, m := range recent {
			for a, n := range m {
				counts[a] += n
			}
		}
		var most int64
		for _, n := range counts {
			most = max(most, n)
		}
		for a, n := range counts {
			if n == most {
				t.Add(1, (&AuctionCount{a, n}).Sum())
			}
		}
	}
	step := Base / slide
	next := func() {
		emit()
		step++
		recent[step%steps] = nil
	}
	in.bids(func(b *Bid) {
		for b.Time/slide > step {
			next()
		}
		m := recent[step%steps]
		if m == nil {
			m = map[int64]int64{}
			recent[step%steps] = m
		}
		m[b.Auction]++
	})
	for range steps {
		next()
	}
	return t
}

func expect7(in input) (t tally.Tally) {
	best := map[int64][]Offer{}
	in.bids(func(b *Bid) {
		w := b.Time / Window.Milliseconds()
		o := Offer{b.Auction, b.Bidder, b.Price, b.Time, strings.Clone(b.Extra)}
		switch now := best[w]; {
		case len(now) == 0 || b.Price > now[0].Price:
			best[w] = []Offer{o}
		case b.Price == now[0].Price:
			best[w] = append(now, o)
		}
	})
	for _, all := range best {
		for _, o := range all {
			t.Add(1, o.Sum())
		}
	}
	return t
}

func expect8(in input) (t tally.Tally) {
	type key struct{ id, window int64 }
	size := Window.Milliseconds()
	sells := map[key]bool{}
	in.auctions(func(a *Auction) { sells[key{a.Seller, a.Time / size}] = true })
	in.persons(func(p *Person) {
		if w := p.Time / size; sells[key{p.ID, w}] {
			t.Add(1, (&NewSeller{p.ID, p.Name, w * size}).Sum())
		}
	})
	return t
}

// expect11: a bid belongs to a session when it comes at most one gap after the one before.
func expect11(in input) (t tally.Tally) {
	gap := Window.Milliseconds()
	open := map[int64]*BidderCount{}
	in.bids(func(b *Bid) {
		s := open[b.Bidder]
		if s == nil || b.Time > s.End {
			if s != nil {
				t.Add(1, s.Sum())
			}
			s = &BidderCount{b.Bidder, 0, b.Time, 0}
			open[b.Bidder] = s
		}
		s.Bids++
		s.End = b.Time + gap
	})
	for _, s := range open {
		t.Add(1, s.Sum())
	}
	return t
}

func expect12(in input) (t tally.Tally) {
	in.bids(func(*Bid) { t.Count++ })
	return t
}

func expect13(in input) (t tally.Tally) {
	in.bids(func(b *Bid) {
		t.Add(1, (&Enriched{b.Auction, b.Bidder, b.Price, b.Time, fmt.Sprint("value-", b.Auction%10_000)}).Sum())
	})
	return t
}

func expect14(in input) (t tally.Tally) {
	in.bids(func(b *Bid) {
		if p := b.Price * 908; p > 1_000_000*1000 && p < 50_000_000*1000 {
			t.Add(1, (&Computed{b.Auction, b.Bidder, p, Hours(b.Time), b.Time, b.Extra, int64(strings.Count(b.Extra, "c"))}).Sum())
		}
	})
	return t
}

// section is what query 16 groups by.
type section struct {
	channel string
	day     int64
}

// pair is what query 18 groups by.
type pair struct{ bidder, auction int64 }

// auctionDay is what query 17 groups by.
type auctionDay struct{ auction, day int64 }

// expectVisits keeps a set for each number that is counted.
func expectVisits(in input, byChannel bool) (t tally.Tally) {
	type group struct {
		row               Visits
		bidders, auctions [4]map[int64]bool // in all, by band
	}
	groups := map[section]*group{}
	var d Days
	in.bids(func(b *Bid) {
		k := section{"", b.Time / DayMS}
		if byChannel {
			k.channel = b.Channel
		}
		g := groups[k]
		if g == nil {
			g = &group{row: Visits{Channel: k.channel, Day: d.Of(b.Time)}}
			for i := range g.bidders {
				g.bidders[i], g.auctions[i] = map[int64]bool{}, map[int64]bool{}
			}
			groups[k] = g
		}
		at := Band(b.Price)
		g.row.Bids.Add(true, at)
		if byChannel {
			g.row.Minute = max(g.row.Minute, Minute(b.Time))
		}
		for _, i := range []int{0, at + 1} {
			g.bidders[i][b.Bidder], g.auctions[i][b.Auction] = true, true
		}
	})
	size := func(s [4]map[int64]bool) Bands {
		return Bands{int64(len(s[0])), int64(len(s[1])), int64(len(s[2])), int64(len(s[3]))}
	}
	for _, g := range groups {
		g.row.Bidders, g.row.Auctions = size(g.bidders), size(g.auctions)
		t.Add(1, g.row.Sum())
	}
	return t
}

func expect15(in input) tally.Tally { return expectVisits(in, false) }
func expect16(in input) tally.Tally { return expectVisits(in, true) }

func expect17(in input) (t tally.Tally) {
	all := map[auctionDay]*Daily{}
	var d Days
	in.bids(func(b *Bid) {
		k := auctionDay{b.Auction, b.Time / DayMS}
		r := all[k]
		if r == nil {
			r = &Daily{Auction: b.Auction, Day: d.Of(b.Time), Min: b.Price}
			all[k] = r
		}
		r.Bids.Add(true, Band(b.Price))
		r.Min, r.Max, r.All = min(r.Min, b.Price), max(r.Max, b.Price), r.All+b.Price
		r.Avg = r.All / r.Bids.All
	})
	for _, r := range all {
		t.Add(1, r.Sum())
	}
	return t
}

func expect18(in input) (t tally.Tally) {
	last := map[pair]int64{}
	in.bids(func(b *Bid) { last[pair{b.Bidder, b.Auction}] = b.Time })
	for k, at := range last {
		t.Add(1, (&LastBid{Bid: Bid{Auction: k.auction, Bidder: k.bidder, Time: at}}).Sum())
	}
	return t
}

func expect19(in input) (t tally.Tally) {
	prices := map[int64][]int64{}
	in.bids(func(b *Bid) {
		p := prices[b.Auction]
		if len(p) == Tenth && b.Price <= p[Tenth-1] {
			return
		}
		p = append(p, b.Price)
		slices.SortFunc(p, func(a, b int64) int { return int(b - a) })
		prices[b.Auction] = p[:min(len(p), Tenth)]
	})
	for a, all := range prices {
		for i, p := range all {
			t.Add(1, (&Ranked{Bid: Bid{Auction: a, Price: p}, Rank: int64(i + 1)}).Sum())
		}
	}
	return t
}

func expect20(in input) (t tally.Tally) {
	items := map[int64]Auction{}
	in.auctions(func(a *Auction) {
		if a.Category == 10 {
			c := *a
			c.Item, c.Description, c.Extra = strings.Clone(a.Item), strings.Clone(a.Description), strings.Clone(a.Extra)
			items[a.ID] = c
		}
	})
	in.bids(func(b *Bid) {
		if a, ok := items[b.Auction]; ok {
			t.Add(1, (&Sold{*b, a}).Sum())
		}
	})
	return t
}

func expect22(in input) (t tally.Tally) {
	in.bids(func(b *Bid) {
		p := strings.Split(b.URL, "/")
		t.Add(1, (&Folders{b.Auction, b.Bidder, b.Price, b.Channel, p[3], p[4], p[5]}).Sum())
	})
	return t
}
