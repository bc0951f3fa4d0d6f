package nexmark

import (
	"strconv"
	"time"
)

// Rows are what queries emit. Each has a Sum, its part in the checksum; the Flink side computes the same from the columns of its sinks.

// weights are odd numbers, one for each column.
var weights = func() (w [16]int64) {
	for i := range w {
		w[i] = int64(mix(uint64(i)) | 1)
	}
	return w
}()

// row is the checksum of a row of numbers.
func row(columns ...int64) int64 {
	var h int64
	for i, c := range columns {
		h += c * weights[i&15]
	}
	return int64(mix(uint64(h)))
}

// text is a string as a number of a row: cheap, so that a query does not become a measurement of checksums.
func text(s string) int64 {
	if len(s) == 0 {
		return 0
	}
	return int64(len(s))<<16 | int64(s[0])<<8 | int64(s[len(s)-1])
}

// Update is a change of a result: of a new row, or of one that replaces another.
type Update[R any] struct {
	New, Old R
	Replaces bool
}

// Row is a row with a checksum.
type Row[R any] interface {
	*R
	Sum() int64
}

// UpdateSum is an update's part in the checksum of the rows that stay.
func UpdateSum[R any, P Row[R]](u *Update[R]) int64 {
	s := P(&u.New).Sum()
	if u.Replaces {
		s -= P(&u.Old).Sum()
	}
	return s
}

// Count makes the count of a tally that of the rows that stay.
func (u *Update[R]) Count() int64 {
	if u.Replaces {
		return 0
	}
	return 1
}

// Offer is a bid without its channel.
type Offer struct {
	Auction, Bidder, Price, Time int64
	Extra                        string
}

// Sum is the row's part in the checksum.
func (r *Offer) Sum() int64 { return row(r.Auction, r.Bidder, r.Price, r.Time, text(r.Extra)) }

// AuctionPrice is a row of query 2.
type AuctionPrice struct{ Auction, Price int64 }

// Sum is the row's part in the checksum.
func (r *AuctionPrice) Sum() int64 { return row(r.Auction, r.Price) }

// Seller is a row of query 3.
type Seller struct {
	Name, City, State string
	Auction           int64
}

// Sum is the row's part in the checksum.
func (r *Seller) Sum() int64 { return row(text(r.Name), text(r.City), text(r.State), r.Auction) }

// CategoryPrice is a row of query 4.
type CategoryPrice struct{ Category, Final int64 }

// Sum is the row's part in the checksum.
func (r *CategoryPrice) Sum() int64 { return row(r.Category, r.Final) }

// AuctionCount is a row of query 5.
type AuctionCount struct{ Auction, Num int64 }

// Sum is the row's part in the checksum.
func (r *AuctionCount) Sum() int64 { return row(r.Auction, r.Num) }

// NewSeller is a row of query 8.
type NewSeller struct {
	ID    int64
	Name  string
	Start int64
}

// Sum is the row's part in the checksum.
func (r *NewSeller) Sum() int64 { return row(r.ID, text(r.Name), r.Start) }

// BidderCount is a row of queries 11 and 12.
type BidderCount struct{ Bidder, Bids, Start, End int64 }

// Sum is the row's part in the checksum.
func (r *BidderCount) Sum() int64 { return row(r.Bidder, r.Bids, r.Start, r.End) }

// Enriched is a row of query 13.
type Enriched struct {
	Auction, Bidder, Price, Time int64
	Value                        string
}

// Sum is the row's part in the checksum.
func (r *Enriched) Sum() int64 { return row(r.Auction, r.Bidder, r.Price, r.Time, text(r.Value)) }

// Computed is a row of query 14; the price has three decimals.
type Computed struct {
	Auction, Bidder, Price int64
	Hours                  string
	Time                   int64
	Extra                  string
	Count                  int64
}

// Sum is the row's part in the checksum.
func (r *Computed) Sum() int64 {
	return row(r.Auction, r.Bidder, r.Price, text(r.Hours), r.Time, text(r.Extra), r.Count)
}

// Bands are counts of all and by price band.
type Bands struct{ All, Low, Middle, High int64 }

// Band is a price's: 0 to 2.
func Band(price int64) int {
	switch {
	case price < 10_000:
		return 0
	case price < 1_000_000:
		return 1
	}
	return 2
}

// Add counts one of a band, and of all unless that has it already.
func (b *Bands) Add(all bool, band int) {
	if all {
		b.All++
	}
	switch band {
	case 0:
		b.Low++
	case 1:
		b.Middle++
	case 2:
		b.High++
	}
}

// Visits is a row of queries 15 and 16; that of 15 has no channel and no minute.
type Visits struct {
	Channel, Day, Minute    string
	Bids, Bidders, Auctions Bands
}

// Sum is the row's part in the checksum.
func (r *Visits) Sum() int64 {
	b, p, a := &r.Bids, &r.Bidders, &r.Auctions
	return row(text(r.Channel), text(r.Day), text(r.Minute), b.All, b.Low, b.Middle, b.High, p.All, p.Low, p.Middle, p.High, a.All, a.Low, a.Middle, a.High)
}

// Daily is a row of query 17.
type Daily struct {
	Auction            int64
	Day                string
	Bids               Bands
	Min, Max, Avg, All int64
}

// Sum is the row's part in the checksum.
func (r *Daily) Sum() int64 {
	return row(r.Auction, text(r.Day), r.Bids.All, r.Bids.Low, r.Bids.Middle, r.Bids.High, r.Min, r.Max, r.Avg, r.All)
}

// LastBid is a row of query 18, with the time of the bid that it replaces. Bids of one millisecond may come in any order when there are
// several subtasks, so only what is the same for them is in the checksum.
type LastBid struct {
	Bid      Bid
	Previous int64 // 0 for none
}

// Sum is the row's part in the checksum.
func (r *LastBid) Sum() int64 {
	s := row(r.Bid.Auction, r.Bid.Bidder, r.Bid.Time)
	if r.Previous != 0 {
		s -= row(r.Bid.Auction, r.Bid.Bidder, r.Previous)
	}
	return s
}

// Count is 1 for a new row.
func (r *LastBid) Count() int64 {
	if r.Previous != 0 {
		return 0
	}
	return 1
}

// Ranked is a row of query 19, with the price of the bid that had its rank.
type Ranked struct {
	Bid      Bid
	Rank     int64
	Previous int64 // 0 for none
}

// Sum is the row's part in the checksum.
func (r *Ranked) Sum() int64 {
	s := row(r.Bid.Auction, r.Bid.Price, r.Rank)
	if r.Previous != 0 {
		s -= row(r.Bid.Auction, r.Previous, r.Rank)
	}
	return s
}

// Count is 1 for a new row.
func (r *Ranked) Count() int64 {
	if r.Previous != 0 {
		return 0
	}
	return 1
}

// Sold is a row of query 20.
type Sold struct {
	Bid  Bid
	Item Auction
}

// Sum is the row's part in the checksum.
func (r *Sold) Sum() int64 {
	b, a := &r.Bid, &r.Item
	return row(b.Auction, b.Bidder, b.Price, text(b.Channel), text(b.URL), b.Time, text(b.Extra), text(a.Item), text(a.Description), a.InitialBid, a.Reserve,
		a.Time, a.Expires, a.Seller, a.Category, text(a.Extra))
}

// Folders is a row of query 22.
type Folders struct {
	Auction, Bidder, Price int64
	Channel                string
	First, Second, Third   string
}

// Sum is the row's part in the checksum.
func (r *Folders) Sum() int64 {
	return row(r.Auction, r.Bidder, r.Price, text(r.Channel), text(r.First), text(r.Second), text(r.Third))
}

// Days names days without making the same string twice.
type Days struct {
	day  int64
	name string
}

// DayMS is a day in milliseconds.
const DayMS = 86_400_000

// Of is a time's day, such as 2025-01-01.
func (d *Days) Of(ms int64) string {
	if n := ms / DayMS; n != d.day || d.name == "" {
		d.day, d.name = n, time.UnixMilli(ms).UTC().Format(time.DateOnly)
	}
	return d.name
}

// minutes are 00:00 to 23:59.
var minutes = func() (m [24 * 60]string) {
	two := func(n int) string { return string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) }
	for i := range m {
		m[i] = two(i/60) + ":" + two(i%60)
	}
	return m
}()

// Minute is a time's minute of the day, such as 09:30.
func Minute(ms int64) string { return minutes[ms%DayMS/60_000] }

// Values is the bounded table of query 13: key k has value-k.
var Values = func() (v [10_000]string) {
	for i := range v {
		v[i] = "value-" + strconv.Itoa(i)
	}
	return v
}()

// Hours is the time of day of query 14.
func Hours(ms int64) string {
	switch h := ms % DayMS / 3_600_000; {
	case h >= 8 && h <= 18:
		return "dayTime"
	case h <= 6 || h >= 20:
		return "nightTime"
	}
	return "otherTime"
}

// Folder is part i of a URL, as Flink's SPLIT_INDEX has it: "" where there is none.
func Folder(url string, i int) string {
	for ; i > 0; i-- {
		at := index(url)
		if at == len(url) {
			return ""
		}
		url = url[at+1:]
	}
	return url[:index(url)]
}

func index(s string) int {
	for i := range len(s) {
		if s[i] == '/' {
			return i
		}
	}
	return len(s)
}

// Tenth is how many bids of an auction query 19 keeps.
const Tenth = 10
