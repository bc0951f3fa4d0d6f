package main

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/bench/internal/proc"
)

const (
	thalweg = "thalweg"
	peer    = "flink"
)

// testCase is one row of the comparison. The numbers of events differ by engine, so that each runs long enough; every figure is per event.
type testCase struct {
	name, title string
	goal        float64 // ratio of events per CPU second that ours should reach; 0 for none
	group       *group  // that has goals of its own
	alone       bool    // there is nothing of Flink's beside it
	parallelism int
	local       localJob
	backend     map[string]string // by engine
	events      map[string]int64  // by engine, at scale 1
	prepare     func(*bench, context.Context, testCase) (engines, error)
}

// group is a set of cases with goals together.
type group struct {
	name   string
	median float64 // that the median of the cases' ratios should reach
	least  float64 // that each should
}

// engines are the two sides of a case, ready to run.
type engines struct {
	run   map[string]func(ctx context.Context, events int64) (sample, error)
	close func() error
}

// sample is one run of one engine.
type sample struct {
	Engine  string  `json:"engine"`
	Events  int64   `json:"events"`
	Wall    float64 `json:"wall_s"`
	CPU     float64 `json:"cpu_s"`
	Peak    float64 `json:"peak_mib"`
	Other   float64 `json:"other_cpu_s"`
	Cluster float64 `json:"cluster_cpu_s,omitempty"` // broker, HDFS and YARN daemons, the client
	Broker  float64 `json:"broker_cpu_s,omitempty"`
	Start   float64 `json:"start_cpu_s,omitempty"` // until every task ran; not part of CPU
	Allocs  float64 `json:"allocs_per_event"`      // ours, where the job counts them
	Quiet   bool    `json:"quiet"`
}

func (s sample) perSecond() float64    { return float64(s.Events) / s.Wall }
func (s sample) perCPUSecond() float64 { return float64(s.Events) / s.CPU }

const (
	million = 1_000_000
	// noise is the share of the machine that others may use during a run.
	noise = 0.15
)

// throughputCases are those of make bench.
func throughputCases() []testCase {
	disk := map[string]string{thalweg: "pebble", peer: "rocksdb"}
	memory := map[string]string{thalweg: "hashmap", peer: "hashmap"}
	return []testCase{
		{name: "generator", title: "generator -> blackhole (the generator's own cost)", parallelism: 1,
			events: map[string]int64{thalweg: 200 * million, peer: 60 * million}, local: pipe("generator"), prepare: local},
		{name: "chain", title: "(a) generator -> map -> filter -> blackhole", goal: 3, parallelism: 1,
			events: map[string]int64{thalweg: 200 * million, peer: 60 * million}, local: pipe("chain"), prepare: local},
		{name: "window-hashmap", title: "(b) keyBy -> tumbling count, hashmap", goal: 3, parallelism: 2, backend: memory,
			events: map[string]int64{thalweg: 60 * million, peer: 20 * million}, local: pipe("window"), prepare: local},
		{name: "window-disk", title: "(b) keyBy -> tumbling count, pebble | rocksdb", goal: 3, parallelism: 2, backend: disk,
			events: map[string]int64{thalweg: 40 * million, peer: 6 * million}, local: pipe("window"), prepare: local},
		{name: "exchange", title: "records of 200 B from one worker to another, over a connection (goal: 2 M a CPU second, 1 GB/s)", alone: true, parallelism: 1,
			events: map[string]int64{thalweg: 50 * million}, prepare: exchange},
		{name: "exchange-strings", title: "the same with structs of 200 B that hold strings, encoded and decoded", alone: true, parallelism: 1,
			events: map[string]int64{thalweg: 20 * million}, prepare: exchange},
		{name: "kafka", title: "(c) Kafka -> keyed window -> Kafka, exactly once, on YARN", goal: 2, parallelism: 2, backend: memory,
			events: map[string]int64{thalweg: 4 * million, peer: 4 * million}, prepare: kafka},
	}
}

// result is what a case came to.
type result struct {
	Name        string      `json:"case"`
	Title       string      `json:"title"`
	Goal        float64     `json:"goal,omitempty"`
	Group       string      `json:"group,omitempty"`
	Parallelism int         `json:"parallelism"`
	Pairs       [][2]sample `json:"pairs"`          // ours, Flink's
	Ours        []sample    `json:"ours,omitempty"` // of runs without pairs
	Repeated    int         `json:"repeated"`
	Disturbed   int         `json:"disturbed"`
	Error       string      `json:"error,omitempty"`
}

// measure runs a case: a warm-up of each engine, then ours and Flink's in turn. A pair during which something else used the machine is run
// again.
func (b *bench) measure(ctx context.Context, c testCase) (result, error) {
	res := result{Name: c.name, Title: c.title, Goal: c.goal, Parallelism: c.parallelism}
	if c.group != nil {
		res.Group = c.group.name
	}
	b.logf("%s", c.title)
	e, err := c.prepare(b, ctx, c)
	if err != nil {
		return res, fmt.Errorf("%s: %w", c.name, err)
	}
	defer func() {
		if err := e.close(); err != nil {
			b.logf("%s: %v", c.name, err)
		}
	}()
	sides := []string{thalweg, peer}
	switch {
	case c.alone && b.only == peer:
		return res, nil
	case c.alone:
		sides = []string{thalweg}
	case b.only != "":
		sides = []string{b.only}
	}
	events := func(side string) int64 { return b.scaled(c.events[side]) }
	if c.name != "kafka" { // there every run starts new processes
		for _, side := range sides {
			if _, err := e.run[side](ctx, b.warmUp(c, side)); err != nil {
				return res, fmt.Errorf("%s: warm-up of %s: %w", c.name, side, err)
			}
		}
	}
	for len(res.Pairs)+len(res.Ours) < b.pairs {
		var pair []sample
		quiet := true
		for _, side := range sides {
			s, err := b.once(ctx, side, events(side), e.run[side])
			if err != nil {
				return res, fmt.Errorf("%s: %s: the run is void: %w", c.name, side, err)
			}
			quiet = quiet && s.Quiet
			pair = append(pair, s)
			b.logf("  %-8s %6.1f s  %s events/s  %6.1f CPU s  %s events/CPU s  %5.0f MiB  other %.1f CPU s", side, s.Wall, thousands(s.perSecond()), s.CPU, thousands(s.perCPUSecond()), s.Peak, s.Other)
		}
		if !quiet && res.Repeated < b.repeats {
			res.Repeated++
			b.logf("  something else used the machine: the pair is run again")
			continue
		}
		if !quiet {
			res.Disturbed++
		}
		if len(pair) == 1 {
			res.Ours = append(res.Ours, pair[0])
		} else {
			res.Pairs = append(res.Pairs, [2]sample{pair[0], pair[1]})
		}
	}
	return res, nil
}

// warmUp is how many events the run before the first pair has. Ours has nothing to warm but the files that it reads: each run is a process of its own.
func (b *bench) warmUp(c testCase, side string) int64 {
	part := int64(2)
	if side == thalweg {
		part = 10
	}
	return max(b.scaled(c.events[side])/part, 1000)
}

func (b *bench) scaled(events int64) int64 { return max(int64(float64(events)*b.scale), 1000) }

// once runs one side and notes what everything else on the machine used meanwhile.
func (b *bench) once(ctx context.Context, side string, events int64, run func(context.Context, int64) (sample, error)) (sample, error) {
	begin, busy, own := time.Now(), proc.Busy(), selfCPU()
	s, err := run(ctx, events)
	if err != nil {
		return s, err
	}
	s.Engine, s.Events = side, events
	took := time.Since(begin).Seconds()
	s.Other = max((proc.Busy()-busy-(selfCPU()-own)).Seconds()-s.CPU-s.Start-s.Cluster, 0)
	s.Quiet = s.Other <= noise*took*float64(proc.Cores())
	return s, nil
}
