package nexmark

// Kind is what an event is.
type Kind uint8

// The kinds, in the order of an epoch of 50 events.
const (
	KindPerson Kind = iota
	KindAuction
	KindBid
)

// Event is one event: the part that Kind names is set, the others hold anything.
type Event struct {
	Kind    Kind
	Bid     Bid
	Auction Auction
	Person  Person
}

// Time is the event time in milliseconds.
func (e *Event) Time() int64 {
	switch e.Kind {
	case KindBid:
		return e.Bid.Time
	case KindAuction:
		return e.Auction.Time
	}
	return e.Person.Time
}

// Bid is an offer of a person for an auction.
type Bid struct {
	Auction, Bidder int64
	Price           int64 // cents
	Time            int64 // milliseconds
	Channel, URL    string
	Extra           string
}

// Auction is what a person sells.
type Auction struct {
	ID                  int64
	InitialBid, Reserve int64 // cents
	Time, Expires       int64 // milliseconds
	Seller, Category    int64
	Item, Description   string
	Extra               string
}

// Person is one who sells and bids.
type Person struct {
	ID                int64
	Time              int64 // milliseconds
	Name, Email, Card string
	City, State       string
	Extra             string
}

// Sum is the event's part in the floor's checksum: it covers numbers and strings of each kind, so that the floor also compares the generators.
func (e *Event) Sum() int64 {
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
