package nexmark

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// own gives an event strings of its own.
func own(e *Event) Event {
	c := Event{Kind: e.Kind}
	switch e.Kind {
	case KindBid:
		c.Bid = e.Bid
		c.Bid.Extra = strings.Clone(e.Bid.Extra)
	case KindAuction:
		a := &c.Auction
		*a = e.Auction
		a.Item, a.Description, a.Extra = strings.Clone(a.Item), strings.Clone(a.Description), strings.Clone(a.Extra)
	default:
		p := &c.Person
		*p = e.Person
		p.Name, p.Email, p.Card, p.Extra = strings.Clone(p.Name), strings.Clone(p.Email), strings.Clone(p.Card), strings.Clone(p.Extra)
	}
	return c
}

func eventAt(n, rate int64) Event {
	var e Event
	NewGenerator(rate).Fill(n, &e)
	return own(&e)
}

// Event n depends on n and the rate alone, whatever was made before; time does not go back, and ids are those of the public definition.
func TestEventsArePure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.SampledFrom([]int64{1000, 100_000, 1_000_000}).Draw(t, "rate")
		g := NewGenerator(rate)
		var e Event
		for _, n := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 20).Draw(t, "numbers") {
			if rapid.Bool().Draw(t, "reset") {
				g.Reset()
			}
			g.Fill(n, &e)
			if got, want := own(&e), eventAt(n, rate); got != want {
				t.Fatal(cmp.Diff(want, got))
			}
			if at := e.Time(); at != Base+n*1000/rate {
				t.Fatalf("event %d at %d", n, at)
			}
			last := firstID + n/epoch*auctions + 2
			switch e.Kind {
			case KindBid:
				if b := e.Bid; b.Auction < firstID || b.Auction > last+lead || b.Auction < last-inFlight-2 && b.Auction%hot != 0 || b.Price < 100 || b.Price > 100_000_000 {
					t.Fatalf("%+v", b)
				}
			case KindAuction:
				if a := e.Auction; a.ID != firstID+n/epoch*auctions+n%epoch-1 || a.Expires <= a.Time || a.Reserve < a.InitialBid || a.Category < 10 || a.Category > 14 {
					t.Fatalf("%+v", a)
				}
			default:
				if p := e.Person; p.ID != firstID+n/epoch || len(p.State) != 2 || len(p.Card) != 19 || !strings.HasSuffix(p.Email, ".com") {
					t.Fatalf("%+v", p)
				}
			}
		}
	})
}

// Persons, auctions and bids are 1:3:46; half of the bids are for the hot auction, three of four by the hot bidder; the mean sizes are
// those of the public definition.
func TestProportions(t *testing.T) {
	const events = 500_000
	g := NewGenerator(100_000)
	var e Event
	var kinds, size [3]float64
	var hotAuction, hotBidder, hotSeller, hotChannel float64
	for n := range int64(events) {
		g.Reset()
		g.Fill(n, &e)
		kinds[e.Kind]++
		switch e.Kind {
		case KindBid:
			b := e.Bid
			size[KindBid] += float64(32 + len(b.Extra))
			if b.Auction == firstID+max(lastAuction(n), 0)/hot*hot {
				hotAuction++
			}
			if b.Bidder == firstID+lastPerson(n)/hot*hot+1 {
				hotBidder++
			}
			if !strings.HasPrefix(b.Channel, "channel-") {
				hotChannel++
			}
		case KindAuction:
			a := e.Auction
			size[KindAuction] += float64(56 + len(a.Item) + len(a.Description) + len(a.Extra))
			if a.Seller == firstID+lastPerson(n)/hot*hot {
				hotSeller++
			}
		default:
			p := e.Person
			size[KindPerson] += float64(16 + len(p.Name) + len(p.Email) + len(p.Card) + len(p.City) + len(p.State) + len(p.Extra))
		}
	}
	if kinds != [3]float64{events / 50, events / 50 * 3, events / 50 * 46} {
		t.Errorf("kinds %v", kinds)
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if got < want*0.97 || got > want*1.03 {
			t.Errorf("%s: %v, want about %v", what, got, want)
		}
	}
	about("hot auction", hotAuction/kinds[KindBid], 0.5+0.5/111)
	about("hot bidder", hotBidder/kinds[KindBid], 0.75)
	about("hot channel", hotChannel/kinds[KindBid], 0.5)
	about("hot seller", hotSeller/kinds[KindAuction], 0.75)
	for k, want := range []float64{200, 500, 100} {
		about("size of "+strconv.Itoa(k), size[k]/kinds[k], want)
	}
}

// The events are those of the Flink side: checksums of a run of thalweg.bench.nexmark over the same numbers.
func TestEventsOfTheFlinkSide(t *testing.T) {
	want := map[int64]tally.Tally{100_000: {Count: 1_000_000, Sum: 137279364197051903}, 1_000_000: {Count: 1_000_000, Sum: -895225658809005940}}
	for rate := range want {
		if got, err := Expected("floor", 1_000_000, rate, false); err != nil || got != want[rate] {
			t.Errorf("rate %d: %+v, %v", rate, got, err)
		}
	}
}

// A price that is near one half of a cent is computed with more digits; both ways agree elsewhere.
func TestPrices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := rapid.Float64Range(0, 5.999999).Draw(t, "exponent")
		i := int(y * powers)
		p := exactPower(i, y) * 100
		q := power[i].hi * 100
		if p < q || p > q*1.01 {
			t.Fatalf("10^%v is %v, above %v", y, p, q)
		}
	})
	if p := exactPower(0, 0); p != 1 {
		t.Errorf("10^0 is %v", p)
	}
}

// A file holds the events of one period, dealt out to its parts; later passes are the same events moved on.
func TestReplay(t *testing.T) {
	const rate = 1_000_000
	for _, parts := range []int{1, 2} {
		path := filepath.Join(t.TempDir(), "events")
		if err := Write(path, rate, parts); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range parts {
			r := f.Part(i)
			var e Event
			for n := int64(i); n < Period+20_000; n += int64(parts) {
				if r.Next(&e); n%997 > 3 && n%Period > 100 {
					continue
				}
				want := eventAt(n%Period, rate)
				want.move(moves(n/Period, rate))
				if got := own(&e); got != want {
					t.Fatalf("event %d: %s", n, cmp.Diff(want, got))
				}
			}
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("opened what is not there")
	}
}
