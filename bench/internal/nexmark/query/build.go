// Package query has the queries of the Nexmark benchmark as programs. Layer: bench; used by bench/jobs/nexmark.
package query

import (
	"time"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/stream"
)

// outOfOrder is how far the watermark lags, as in the benchmark's tables.
const outOfOrder = 4 * time.Second

// queries add a query to a stream of events; its sinks leave their tallies in dir.
var queries = map[string]func(events stream.DataStream[nexmark.Event], dir string){
	"floor": floor, "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q7": q7, "q8": q8, "q11": q11, "q12": q12, "q13": q13,
	"q14": q14, "q15": q15, "q16": q16, "q17": q17, "q18": q18, "q19": q19, "q20": q20, "q22": q22,
}

// Build makes a query's job; its sinks leave their tallies in dir.
func Build(env *stream.Environment, name string, src connector.Source[nexmark.Event], dir string) error {
	add, ok := queries[name]
	if !ok {
		return nexmark.Unknown(name)
	}
	events := env.FromSource(src, stream.BoundedOutOfOrderness[nexmark.Event](outOfOrder, nil), "events").UID("events")
	add(events.DataStream, dir)
	return nil
}

// sink ends a query.
func sink[R any, P nexmark.Row[R]](s stream.DataStream[R], dir string) {
	s.SinkTo(tally.Sink[R]{Dir: dir, Sum: func(r *R) int64 { return P(r).Sum() }}).UID("out")
}

// sinkUpdates ends a query whose results change.
func sinkUpdates[R any, P nexmark.Row[R]](s stream.DataStream[nexmark.Update[R]], dir string) {
	s.SinkTo(tally.Sink[nexmark.Update[R]]{Dir: dir, Sum: nexmark.UpdateSum[R, P], Count: (*nexmark.Update[R]).Count}).UID("out")
}
