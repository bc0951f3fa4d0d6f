package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/failpoint"
)

var (
	long   = flag.Int("long", 0, "faults of the long run, of all kinds; -1: each once")
	pairs  = flag.Int("pairs", 0, "pairs of faults at a time, in the long run")
	only   = flag.String("only", "", "regular expression: the long run has faults with such names alone")
	soak   = flag.Duration("soak", 0, "length of the long run: as many faults as -every lets it have; 0: as -long says")
	every  = flag.Duration("every", 0, "least time between the beginnings of two faults of the long run")
	limit  = flag.Duration("limit", 35*time.Minute, "time that the long run may take")
	ending = flag.String("ending", "draw", "failpoint at which the application master dies at the end of the long run; empty: none")
	rate   = flag.Int64("rate", 300, "input records for each second of the long run, when -records is 0")
	late   = flag.Int("endtxn", 0, "the long run delivers so many EndTxn requests late, and has no other faults but deaths meanwhile")
	chk    = flag.Duration("interval", 0, "between checkpoints of the long run; 0: 1 s")
	txns   = flag.Int("transactions", 0, "level of the broker's feature transaction.version in the long run; 0: as it is")
)

// endings are where the application master can die while a job is cancelled.
var endings = []string{"", "job/end", "master/unregister/before", "master/unregister/after"}

// Results are exactly once whatever happens at whatever step of the protocols, in the daemons and in the network, also two faults at a time.
func TestEveryStep(t *testing.T) {
	if *long == 0 && *late == 0 {
		t.Fatal("no faults are asked for (-long N): long runs are those of make test-faults, make soak and make test-endtxn")
	}
	if !failpoint.Enabled {
		t.Fatal("this build has no failpoints: go test -tags failpoints")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1e6
	}
	name, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	kinds := append(pointFaults(*backend), aroundFaults()...)
	if *late > 0 {
		kinds, *long = endTxnFaults(), (*late+lateBatch-1)/lateBatch
	}
	all := slices.DeleteFunc(slices.Clone(kinds), func(f Fault) bool {
		return !name.MatchString(f.Name) || f.Root && !root() || f.Apart && !apart(cluster)
	})
	if !apart(cluster) {
		t.Log("both nodes are on one host (THALWEG_RIG_HOSTS=2 makes a cluster of two): none is decommissioned")
	}
	if !root() {
		t.Log("this is not root: the network between processes is not cut, and the local disk not full")
	}
	if len(all) < 1 || *pairs > 0 && len(all) < 2 {
		t.Fatalf("%d faults have a name like %q", len(all), *only)
	}
	n := *long
	if n < 0 {
		n = len(all)
	}
	if *soak > 0 && *every > 0 {
		n = max(1, int(*soak / *every))
	}
	rng := rand.New(rand.NewPCG(*seed, 11))
	steps := schedule(rng, all, n, *pairs)
	if *ending == "draw" {
		*ending = endings[rng.IntN(len(endings))]
	}
	total := *records
	if total == 0 {
		total = *rate * int64(Options{Steps: steps, Every: *every, Interval: *chk}.pace().Seconds()) * int64(len(steps)+1)
	}
	t.Logf("%d faults and %d pairs; repeat with SEED=%d", n, *pairs, *seed)
	bin, file := binaries(t, "build-faults"), historyFile(t)
	ctx, cancel := context.WithTimeout(t.Context(), *limit)
	defer cancel()
	if *txns > 0 {
		if err := transactionVersion(ctx, *txns); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	rep, err := Run(ctx, Options{Cluster: cluster, Bin: bin, Seed: *seed, Records: total, Backend: *backend, Steps: steps, Every: *every,
		Ending: *ending, Interval: *chk, History: file, Log: os.Stderr})
	if rep != nil {
		rep.table(os.Stderr)
	}
	judged(t, rep, err)
	noneLeft(ctx, t, rep.App)
	if rep.Late < *late {
		t.Errorf("%d EndTxn were delivered late, %d were asked for", rep.Late, *late)
	}
	fmt.Fprintf(os.Stderr, "%d faults and %d late EndTxn in %v; %d failpoints came up\n", rep.Injected, rep.Late, time.Since(begin).Round(time.Second), len(rep.Reached))
}

// transactionVersion sets the broker's level of transaction.version: from 2 on an EndTxn that comes late is refused by its epoch (KIP-890).
func transactionVersion(ctx context.Context, want int) error {
	out, err := cluster.KafkaCLI(ctx, "kafka-features", "describe")
	if err != nil {
		return err
	}
	m := regexp.MustCompile(`transaction\.version.*FinalizedVersionLevel:\s*(\d+)`).FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("faults: kafka-features describe does not name transaction.version: %s", out)
	}
	is, err := strconv.Atoi(m[1])
	if err != nil || is == want {
		return err
	}
	how := "upgrade"
	if is > want {
		how = "downgrade"
	}
	_, err = cluster.KafkaCLI(ctx, "kafka-features", how, "--feature", "transaction.version="+strconv.Itoa(want))
	return err
}

// Each failpoint that a run can come to has a fault that strikes there, or is listed here with the reason.
func TestEveryFailpointIsStruck(t *testing.T) {
	text, err := os.ReadFile("../../docs/failpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	struck := map[string]bool{
		"checkpoint/abort": true, // comes up with every fault that makes a checkpoint fail, not by itself
	}
	for _, e := range endings {
		struck[e] = true
	}
	points := regexp.MustCompile("(?m)^\\| `([a-z/-]+)`").FindAllStringSubmatch(string(text), -1)
	known := map[string]bool{}
	for _, m := range points {
		known[m[1]] = true
	}
	for _, f := range pointFaults("pebble") {
		m := regexp.MustCompile(` at ([a-z/-]+)$`).FindStringSubmatch(f.Name)
		if m == nil || !known[m[1]] {
			t.Errorf("%s: docs/failpoints.md has no such point", f.Name)
			continue
		}
		struck[m[1]] = true
	}
	for p := range known {
		if !struck[p] {
			t.Errorf("no fault strikes at %s", p)
		}
	}
}

// A run's schedule is a function of its seed, has each fault before one comes twice, and keeps deaths of the application master apart.
func TestScheduleIsDrawnBySeed(t *testing.T) {
	all := append(pointFaults("pebble"), aroundFaults()...)
	draw := func(seed uint64) (names []string, steps []Step) {
		steps = schedule(rand.New(rand.NewPCG(seed, 11)), all, len(all), 10)
		for _, s := range steps {
			names = append(names, s.name())
		}
		return names, steps
	}
	names, steps := draw(7)
	if again, _ := draw(7); !slices.Equal(names, again) {
		t.Error("two draws of seed 7 differ")
	}
	if other, _ := draw(8); slices.Equal(names, other) {
		t.Error("seeds 7 and 8 give the same")
	}
	single, near := map[string]bool{}, 0
	for i, s := range steps {
		if len(s) == 1 {
			single[s.name()] = true
		}
		if i > 0 && s.master() && steps[i-1].master() {
			near++
		}
	}
	if len(single) != len(all) {
		t.Errorf("%d of %d faults are in the schedule", len(single), len(all))
	}
	if near > len(steps)/5 {
		t.Errorf("%d times the application master dies twice in a row", near)
	}
}

func TestListeningPortsOfAProcess(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want, err := portsOf(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := listening(os.Getpid()); err != nil || !slices.Contains(got, want[0]) {
		t.Errorf("listening = %v, %v; want %d among them", got, err, want[0])
	}
}

func TestSecondsWithOutput(t *testing.T) {
	begin := time.Unix(1000, 0)
	w := &rawReader{}
	for _, ms := range []int{-1, 100, 200, 999, 1000, 3500, 5200} {
		w.at = append(w.at, begin.Add(time.Duration(ms)*time.Millisecond))
	}
	if with, all := w.seconds(begin, begin.Add(5500*time.Millisecond)); with != 3 || all != 5 {
		t.Errorf("output in %d of %d seconds, want 3 of 5", with, all)
	}
}
