package nexmark

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/stream"
)

// outOfOrder is how far the watermark lags, as in the benchmark's tables.
const outOfOrder = 4 * time.Second

// query is a query as a program.
type query struct {
	title string
	build func(events stream.DataStream[Event], dir string)
	// expected computes its result the plain way.
	expected func(in input) tally.Tally
	// atMost says that the result depends on the clock, and that only its count is known: it is not more than expected.
	atMost bool
}

var queries = map[string]query{
	"floor": {"events -> discard", floor, expectFloor, false},
	"q0":    {"all bids, projected", q0, expect0, false},
	"q1":    {"prices in another currency", q1, expect1, false},
	"q2":    {"bids on every 123rd auction", q2, expect2, false},
	"q3":    {"who sells in category 10 in OR, ID or CA", q3, expect3, false},
	"q4":    {"mean of the winning bids of each category", q4, expect4, false},
	"q5":    {"auctions with the most bids of 10 s, every 2 s", q5, expect5, false},
	"q7":    {"the highest bids of every 10 s", q7, expect7, false},
	"q8":    {"persons who sell in the 10 s in which they registered", q8, expect8, false},
	"q11":   {"bids in each session of a bidder", q11, expect11, false},
	"q12":   {"bids of each bidder in every 10 s of processing time", q12, expect12, true},
	"q13":   {"bids enriched from a bounded table", q13, expect13, false},
	"q14":   {"computation, filter, count of a letter", q14, expect14, false},
	"q15":   {"distinct bidders and auctions of a day by price", q15, expect15, false},
	"q16":   {"the same for each channel", q16, expect16, false},
	"q17":   {"daily statistics of each auction", q17, expect17, false},
	"q18":   {"the last bid of each bidder on each auction", q18, expect18, false},
	"q19":   {"the ten highest bids of each auction", q19, expect19, false},
	"q20":   {"bids with their auctions of category 10", q20, expect20, false},
	"q22":   {"the folders of the bids' URLs", q22, expect22, false},
}

// Names are the queries, and "floor", which only makes the events.
func Names() []string {
	names := slices.Collect(maps.Keys(queries))
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) && a != "floor" && b != "floor" {
			return len(a) - len(b)
		}
		return cmpText(a, b)
	})
	return names
}

func cmpText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Title says in a few words what a query asks.
func Title(name string) string { return queries[name].title }

// Build makes a query's job; its sinks leave their tallies in dir.
func Build(env *stream.Environment, name string, src connector.Source[Event], dir string) error {
	q, ok := queries[name]
	if !ok {
		return fmt.Errorf("nexmark: no query %q: want one of %v", name, Names())
	}
	events := env.FromSource(src, stream.BoundedOutOfOrderness[Event](outOfOrder, nil), "events").UID("events")
	q.build(events.DataStream, dir)
	return nil
}

// sink ends a query.
func sink[R any, P rowOf[R]](s stream.DataStream[R], dir string) {
	s.SinkTo(tally.Sink[R]{Dir: dir, Sum: func(r *R) int64 { return P(r).Sum() }}).UID("out")
}

// sinkUpdates ends a query whose results change.
func sinkUpdates[R any, P rowOf[R]](s stream.DataStream[Update[R]], dir string) {
	s.SinkTo(tally.Sink[Update[R]]{Dir: dir, Sum: updateSum[R, P], Count: updateCount[R]}).UID("out")
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
