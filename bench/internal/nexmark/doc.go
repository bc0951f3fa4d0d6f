// Package nexmark is the Nexmark benchmark: its events, what its queries emit, and their results by a plain computation. Layer: bench; used by
// its package query, which has the queries as programs, and by bench/cmd/bench.
//
// Event n is a pure function of n and of the event-time rate: of 50 events the first is a person, the next three are auctions, the others
// bids. The Flink side (bench/flink, thalweg.bench.nexmark) makes the very same events, so a result is right when its count and its
// checksum are those of Expected. Generator makes the events; Write stores them in a compact form that Replay reads again, over and over,
// each pass with its ids and times moved on; Source is a source of either.
//
// Invariants: the strings of an event that a source emits are views: into the source's own memory, which the next batch reuses, or into the
// mapped file. They are valid during the call; what the engine keeps, it copies.
//
// Source: https://github.com/nexmark/nexmark (proportions, ids, hot ratios, sizes). It departs from it in the random numbers, which are
// SplitMix64 seeded by n, and in the letters of the strings.
package nexmark
