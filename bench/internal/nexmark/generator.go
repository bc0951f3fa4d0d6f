package nexmark

import (
	"math/bits"
	"strconv"
	"unsafe"
)

// Base is the event time of event 0, in milliseconds: 2025-01-01T00:00:00Z.
const Base = int64(1_735_689_600_000)

const (
	epoch       = 50 // events: a person, three auctions, 46 bids
	auctions    = 3
	firstID     = 1000
	categories  = 5
	firstCat    = 10
	active      = 1000 // persons that sell and bid
	inFlight    = 100  // auctions that are bid for
	lead        = 10   // ids that are not born yet
	hot         = 100  // ids of which one is hot
	channels    = 10_000
	hotChannels = 4
)

var (
	firstNames = [...]string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	lastNames  = [...]string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	cities     = [...]string{"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"}
	states     = [...]string{"AZ", "CA", "ID", "OR", "WA", "WY"}
)

// channel i has a name and a URL, made once; those from channels on are hot.
var channel, url = func() (c, u [channels + hotChannels]string) {
	for i := range c {
		r := rng(^uint64(i))
		b := []byte("https://www.nexmark.com/")
		for range 3 {
			b = append(r.letters(b, 3+r.below(3)), '/')
		}
		b = append(b, "item.htm?query=1"...)
		if i < channels {
			id := int64(int32(bits.Reverse32(uint32(i))))
			b = strconv.AppendInt(append(b, "&channel_id="...), max(id, -id), 10)
			c[i] = "channel-" + strconv.Itoa(i)
		} else {
			c[i] = [...]string{"Google", "Facebook", "Baidu", "Apple"}[i-channels]
		}
		u[i] = string(b)
	}
	return c, u
}()

// Generator makes events. It holds the memory of their strings: those of earlier events are valid until Reset.
type Generator struct {
	perMS int64
	r     rng
	buf   []byte
}

// NewGenerator returns a generator with a rate in events per second of event time, a multiple of 1000.
func NewGenerator(rate int64) *Generator { return &Generator{perMS: max(rate/1000, 1)} }

// Reset frees the memory of all events' strings for the next ones.
func (g *Generator) Reset() { g.buf = g.buf[:0] }

// room makes sure that no event's strings have to move while they are made.
func (g *Generator) room(n int) {
	if cap(g.buf)-len(g.buf) < n {
		g.buf = make([]byte, 0, max(64<<10, n)) // earlier events keep the old memory
	}
}

// since is the bytes appended from at on, as a view.
func (g *Generator) since(at int) string {
	return unsafe.String(unsafe.SliceData(g.buf[at:]), len(g.buf)-at)
}

func (g *Generator) time(n int64) int64 { return Base + n/g.perMS }

func lastPerson(n int64) int64 { return n / epoch }

func lastAuction(n int64) int64 {
	e := n / epoch
	switch off := n % epoch; {
	case off < 1:
		return (e-1)*auctions + auctions - 1
	case off > auctions:
		return e*auctions + auctions - 1
	default:
		return e*auctions + off - 1
	}
}

func (g *Generator) anyPerson(n int64) int64 {
	people := lastPerson(n) + 1
	some := min(people, active)
	return people - some + g.r.below(some+lead)
}

func (g *Generator) anyAuction(n int64) int64 {
	last := max(lastAuction(n), 0)
	first := max(last-inFlight, 0)
	return first + g.r.below(last-first+1+lead)
}

// extra is as many letters as bring an event of now bytes to about avg.
func (g *Generator) extra(now, avg int64) string {
	if now > avg {
		return ""
	}
	d := avg - now
	delta := (2*d + 5) / 10 // a fifth, rounded
	k := d - delta
	if delta > 0 {
		k += g.r.below(2 * delta)
	}
	at := len(g.buf)
	g.buf = g.r.letters(g.buf, k)
	return g.since(at)
}

func (g *Generator) word(longest int64) string {
	at := len(g.buf)
	g.buf = g.r.letters(g.buf, 3+g.r.below(longest-3))
	return g.since(at)
}

// Fill makes event n.
func (g *Generator) Fill(n int64, e *Event) {
	g.r = rng(mix(uint64(n)))
	switch off := n % epoch; {
	case off > auctions:
		e.Kind = KindBid
		g.bid(n, &e.Bid)
	case off > 0:
		e.Kind = KindAuction
		g.auction(n, &e.Auction)
	default:
		e.Kind = KindPerson
		g.person(n, &e.Person)
	}
}

func (g *Generator) person(n int64, p *Person) {
	g.room(1024)
	p.ID, p.Time = firstID+lastPerson(n), g.time(n)
	at := len(g.buf)
	g.buf = append(g.buf, firstNames[g.r.below(int64(len(firstNames)))]...)
	g.buf = append(g.buf, ' ')
	g.buf = append(g.buf, lastNames[g.r.below(int64(len(lastNames)))]...)
	p.Name = g.since(at)
	at = len(g.buf)
	g.buf = append(g.r.letters(g.buf, 3+g.r.below(4)), '@')
	g.buf = g.r.letters(g.buf, 3+g.r.below(2))
	g.buf = append(g.buf, ".com"...)
	p.Email = g.since(at)
	at = len(g.buf)
	for i := range 4 {
		if i > 0 {
			g.buf = append(g.buf, ' ')
		}
		d := g.r.below(10_000)
		g.buf = append(g.buf, '0'+byte(d/1000), '0'+byte(d/100%10), '0'+byte(d/10%10), '0'+byte(d%10))
	}
	p.Card = g.since(at)
	p.City = cities[g.r.below(int64(len(cities)))]
	p.State = states[g.r.below(int64(len(states)))]
	p.Extra = g.extra(int64(8+len(p.Name)+len(p.Email)+len(p.Card)+8+len(p.City)+len(p.State)), 200)
}

func (g *Generator) auction(n int64, a *Auction) {
	g.room(2048)
	a.ID, a.Time = firstID+lastAuction(n), g.time(n)
	if g.r.below(4) > 0 {
		a.Seller = firstID + lastPerson(n)/hot*hot
	} else {
		a.Seller = firstID + g.anyPerson(n)
	}
	a.Category = firstCat + g.r.below(categories)
	a.InitialBid = g.r.price()
	a.Reserve = a.InitialBid + g.r.price()
	horizon := g.time(n+inFlight*epoch/auctions) - a.Time
	a.Expires = a.Time + 1 + g.r.below(max(horizon*2, 1))
	a.Item, a.Description = g.word(20), g.word(100)
	a.Extra = g.extra(int64(56+len(a.Item)+len(a.Description)), 500)
}

func (g *Generator) bid(n int64, b *Bid) {
	g.room(256)
	if g.r.below(2) > 0 {
		b.Auction = firstID + max(lastAuction(n), 0)/hot*hot
	} else {
		b.Auction = firstID + g.anyAuction(n)
	}
	if g.r.below(4) > 0 {
		b.Bidder = firstID + lastPerson(n)/hot*hot + 1
	} else {
		b.Bidder = firstID + g.anyPerson(n)
	}
	b.Price, b.Time = g.r.price(), g.time(n)
	c := int64(channels)
	if g.r.below(2) > 0 {
		c += g.r.below(hotChannels)
	} else {
		c = g.r.below(channels)
	}
	b.Channel, b.URL = channel[c], url[c]
	b.Extra = g.extra(32, 100)
}
