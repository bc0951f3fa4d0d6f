package stream

import "github.com/thalweg/thalweg/runtime/operator"

// CachedDataStream is a stream whose records are computed once, whoever reads them and how often. See DataStream.Cache.
type CachedDataStream[T any] = SingleOutputStreamOperator[T]

// Cache keeps the records of a bounded stream for everything in the program that reads the returned stream. In BATCH they are written to
// local disks when they have been computed, and each consumer reads them from there: consumers are tasks of their own, none is chained to
// what computes the records, so that one that fails, or is slow, or is itself run again does not make them computed again. Consumers
// that take the records as they are (Map, Filter, Process, a sink) share what is on disk; those that partition them (KeyBy, Rebalance,
// Broadcast) get them partitioned when they are written, once for all readers of one keyed stream (k := s.KeyBy(...)) that have the same
// parallelism. They are computed again only when a worker that holds them has died, or they cannot be read from its disk any more, and are
// removed when the last consumer has finished.
//
// In STREAMING the stream passes on what it gets, and nothing is kept: all consumers get each record as it is computed.
//
// Flink keeps a cached result in the cluster after the job, for later executions of the same program, until it is invalidated or the
// environment is closed. A program here is one graph and one execution, so all consumers are known when it begins: there is no later
// execution to keep records for, and nothing to invalidate. A result that another program is to read belongs into files (connector/file).
//
// Source: Flink DataStream.cache, CacheTransformationTranslator.
func (s DataStream[T]) Cache() CachedDataStream[T] {
	out := next[T](s.f, "cache", "Cache", operator.Pass())
	if len(s.f.ins) == 1 { // chained to what it keeps, if it can be
		out.f.node.Parallelism, out.f.node.MaxParallelism = s.f.ins[0].node.Parallelism, s.f.ins[0].node.MaxParallelism
	}
	return out
}
