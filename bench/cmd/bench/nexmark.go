package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

// The cases of make bench-nexmark are named query/plan/source/parallelism/backend/rate:
//
//	plan:   sql   a Go program beside Flink SQL, each as its users write it
//	        same  the same Go program beside one of the same algorithm with Flink's DataStream API
//	source: generator, or replay of a mapped file
//	rate:   thousands of events per second of event time
//
// The query "floor" only makes or reads the events and discards them.

// load is how many million events a run has at scale 1, so that each takes long enough.
type load struct{ ours, theirs int64 }

var loads = map[string]load{
	"floor": {100, 40}, "q0": {100, 40}, "q1": {100, 40}, "q2": {100, 40}, "q3": {60, 20}, "q4": {10, 4}, "q5": {40, 12}, "q7": {50, 5}, "q8": {80, 30},
	"q11": {40, 10}, "q12": {40, 10}, "q13": {60, 20}, "q14": {80, 30}, "q15": {10, 5}, "q16": {8, 4}, "q17": {20, 8}, "q18": {10, 5}, "q19": {15, 5}, "q20": {15, 5}, "q22": {60, 20},
}

// sameSet are the queries that are also compared with the same algorithm.
var sameSet = []string{"floor", "q0", "q2", "q5", "q8", "q11", "q18", "q20"}

var (
	plain   = []string{"floor", "q0", "q1", "q2", "q13", "q14", "q22"}
	windows = []string{"q5", "q7", "q8", "q11", "q12"}
	joins   = []string{"q3", "q4", "q18", "q19", "q20"}
	// growing have the more state, and the more work for an event, the more events there are: both sides get the same number.
	growing = []string{"q18", "q19"}
)

// groupOf is the group whose goals a case is held to.
func groupOf(query, plan, source, backend string) *group {
	switch {
	case query == "floor":
		return nil
	case plan == "same":
		return &group{"same algorithm", 2.5, 0}
	case query == "q0" || query == "q1" || query == "q2":
		if source == "replay" {
			return &group{"q0-q2, replay", 5, 5}
		}
		return &group{"q0-q2, generator", 3, 3}
	case slices.Contains(windows, query):
		return &group{"windows", 4, 2.5}
	case slices.Contains(joins, query) && backend == "disk":
		return &group{"joins and ranks on disk", 4, 2}
	}
	return nil
}

func nexmarkCases() []testCase {
	var all []testCase
	for _, query := range nexmark.Names() {
		for _, plan := range []string{"sql", "same"} {
			if plan == "same" && !slices.Contains(sameSet, query) {
				continue
			}
			for _, source := range []string{"generator", "replay"} {
				for _, p := range []int{1, 2} {
					for _, backend := range []string{"memory", "disk"} {
						for _, rate := range []int64{100, 1000} {
							if slices.Contains(plain, query) && (backend != "memory" || rate != 100) {
								continue // neither matters
							}
							all = append(all, nexmarkCase(query, plan, source, p, backend, rate))
						}
					}
				}
			}
		}
	}
	return all
}

// headline are the cases that run when none is named: each query once, from replay, on the backend that its goal is about.
func headline(all []testCase) []testCase {
	var chosen []testCase
	for _, c := range all {
		n := strings.Split(c.name, "/")
		backend := "memory"
		if slices.Contains(joins, n[0]) {
			backend = "disk"
		}
		if n[2] == "replay" && n[3] == "p1" && n[4] == backend && n[5] == "100k" || n[0] == "floor" && n[3] == "p1" {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func nexmarkCase(query, plan, source string, p int, backend string, rate int64) testCase {
	class, with := "thalweg.bench.nexmark.Sql", "Flink SQL"
	if plan == "same" {
		class, with = "thalweg.bench.nexmark.Stream", "Flink's DataStream API"
	}
	backends := map[string]string{thalweg: "hashmap", peer: "hashmap"}
	events := map[string]int64{thalweg: loads[query].ours * million, peer: loads[query].theirs * million}
	if backend == "disk" {
		if slices.Contains(growing, query) {
			events[thalweg], events[peer] = 20*million, 20*million
		} else {
			events[thalweg] *= 4 // else ours ends before its state is on disk and its first checkpoints are made
		}
		backends = map[string]string{thalweg: "pebble", peer: "rocksdb"}
	}
	replay := source == "replay"
	file := "" // set by prepare
	c := testCase{
		name:        fmt.Sprintf("%s/%s/%s/p%d/%s/%dk", query, plan, source, p, backend, rate),
		title:       fmt.Sprintf("%s; beside %s; %s, %d,000 events/s of event time", nexmark.Title(query), with, source, rate),
		group:       groupOf(query, plan, source, backend),
		parallelism: p, backend: backends,
		events:  events,
		prepare: local,
	}
	c.local = localJob{
		program: "nexmark", class: class, interval: "10 s",
		args: func(side string, events int64, results string) []string {
			args := []string{"--query", query, "--events", strconv.FormatInt(events, 10), "--rate", strconv.FormatInt(rate*1000, 10), "--result", results}
			if replay {
				args = append(args, "--file", file)
			}
			if side == thalweg {
				args = append(args, "--allocs", results)
			}
			return args
		},
		key:      func(events int64) string { return fmt.Sprintf("%s/%s/%dk/%d", query, source, rate, events) },
		expected: func(events int64) (tally.Tally, error) { return nexmark.Expected(query, events, rate*1000, replay) },
		check:    func(got, want tally.Tally) error { return nexmark.Check(query, got, want) },
		prepare: func(_ context.Context, b *bench) error {
			if !replay {
				return nil
			}
			file = filepath.Join(b.data, fmt.Sprintf("nexmark-%dk-%d", rate, p))
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			b.logf("writing %s", file)
			return nexmark.Write(file, rate*1000, p)
		},
	}
	return c
}
