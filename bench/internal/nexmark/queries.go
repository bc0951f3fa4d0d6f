package nexmark

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// Window is the size of the queries' windows.
const Window = 10 * time.Second

// query is a query's title and result.
type query struct {
	title    string
	expected func(in input) tally.Tally
	// atMost says that the result depends on the clock, and that only its count is known: it is not more than expected.
	atMost bool
}

var queries = map[string]query{
	"floor": {"events -> discard", expectFloor, false},
	"q0":    {"all bids, projected", expect0, false},
	"q1":    {"prices in another currency", expect1, false},
	"q2":    {"bids on every 123rd auction", expect2, false},
	"q3":    {"who sells in category 10 in OR, ID or CA", expect3, false},
	"q4":    {"mean of the winning bids of each category", expect4, false},
	"q5":    {"auctions with the most bids of 10 s, every 2 s", expect5, false},
	"q7":    {"the highest bids of every 10 s", expect7, false},
	"q8":    {"persons who sell in the 10 s in which they registered", expect8, false},
	"q11":   {"bids in each session of a bidder", expect11, false},
	"q12":   {"bids of each bidder in every 10 s of processing time", expect12, true},
	"q13":   {"bids enriched from a bounded table", expect13, false},
	"q14":   {"computation, filter, count of a letter", expect14, false},
	"q15":   {"distinct bidders and auctions of a day by price", expect15, false},
	"q16":   {"the same for each channel", expect16, false},
	"q17":   {"daily statistics of each auction", expect17, false},
	"q18":   {"the last bid of each bidder on each auction", expect18, false},
	"q19":   {"the ten highest bids of each auction", expect19, false},
	"q20":   {"bids with their auctions of category 10", expect20, false},
	"q22":   {"the folders of the bids' URLs", expect22, false},
}

// Names are the queries, and "floor", which only makes the events.
func Names() []string {
	names := slices.Collect(maps.Keys(queries))
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) && a != "floor" && b != "floor" {
			return len(a) - len(b)
		}
		return cmp.Compare(a, b)
	})
	return names
}

// Title says in a few words what a query asks.
func Title(name string) string { return queries[name].title }

// Unknown is the error for a query that there is not.
func Unknown(name string) error {
	return fmt.Errorf("nexmark: no query %q: want one of %v", name, Names())
}

// Check compares what arrived at the sinks with the plain computation.
func Check(name string, got, want tally.Tally) error {
	if queries[name].atMost {
		if got.Count < 0 || got.Count > want.Count {
			return fmt.Errorf("wrong results: %d bids arrived of %d", got.Count, want.Count)
		}
		return nil
	}
	if got != want {
		return fmt.Errorf("wrong results: the sinks have %+v, the plain computation %+v", got, want)
	}
	return nil
}
