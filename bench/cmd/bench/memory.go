package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/cgroup"
	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/confined"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/config"
)

// The suite memory looks for the smallest containers with which a job keeps most of its throughput: first that of the TaskManager, beside a
// master that has plenty, then that of the master beside this TaskManager. Each container is a control group of the size that its key says.

const (
	keeps = 0.95 // of the throughput with plenty
	// step is the ratio between two sizes that are tried.
	step = 1.12
	// goalOfMemory is the ratio of the sums, ours over Flink's.
	goalOfMemory = 1.0 / 3
)

// sizes are what the two containers have, in bytes.
type sizes struct {
	TaskManager int64 `json:"taskmanager"`
	Master      int64 `json:"master"`
}

func (s sizes) sum() int64 { return s.TaskManager + s.Master }

// bounds are where the search is made. Plenty is the larger end; below the smaller one the engine itself refuses.
type bounds struct{ least, plenty sizes }

var memoryBounds = map[string]bounds{
	thalweg: {least: sizes{128 << 20, 64 << 20}, plenty: sizes{2 << 30, 448 << 20}},
	peer:    {least: sizes{384 << 20, 256 << 20}, plenty: sizes{4 << 30, 1600 << 20}},
}

// trial is one run with some sizes.
type trial struct {
	sizes
	Throughput float64      `json:"events_per_s"` // 0 when it failed
	Kept       float64      `json:"kept"`         // of that with plenty
	Memory     cgroup.Usage `json:"taskmanager_memory"`
	MasterMem  cgroup.Usage `json:"master_memory"`
	Failure    string       `json:"failure,omitempty"`
}

// need is what one engine came to in one case.
type need struct {
	Engine string  `json:"engine"`
	Plenty trial   `json:"plenty"`
	Need   trial   `json:"need"`
	Trials []trial `json:"trials"`
}

// memoryResult is a case's.
type memoryResult struct {
	Name  string `json:"case"`
	Title string `json:"title"`
	Needs []need `json:"needs"`
	// Matched is what ours needs for the throughput that Flink has to keep, where its own is higher.
	Matched *trial `json:"matched,omitempty"`
	// OnlyMatched says that ours was not looked for at its own throughput.
	OnlyMatched bool   `json:"only_matched,omitempty"`
	Error       string `json:"error,omitempty"`
}

// ratio is that of one of our trials to what Flink needs; 0 for none.
func (r memoryResult) ratio(ours trial) float64 {
	if len(r.Needs) != 2 || r.Needs[1].Need.sum() == 0 {
		return 0
	}
	return float64(ours.sum()) / float64(r.Needs[1].Need.sum())
}

// memoryCases are cases of the other suites, with so many events that several checkpoints are in a run: one more or less must not decide.
func memoryCases() []testCase {
	var all []testCase
	for _, x := range []struct {
		name         string
		ours, theirs int64
	}{
		{"chain", 600, 20}, {"q5/same/replay/p1/memory/100k", 160, 20}, {"q18/same/replay/p1/disk/100k", 40, 5},
	} {
		for _, c := range append(throughputCases(), nexmarkCases()...) {
			if c.name == x.name {
				c.events = map[string]int64{thalweg: x.ours * million, peer: x.theirs * million}
				all = append(all, c)
			}
		}
	}
	return all
}

// memory runs the suite.
func (b *bench) memory(ctx context.Context, out io.Writer) error {
	var all []memoryResult
	var failed error
	for _, c := range b.cases {
		r, err := b.needs(ctx, c)
		if err != nil {
			r.Error = err.Error()
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
			b.logf("%s: %v", c.name, err)
		}
		all = append(all, r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	rep := struct {
		Date, Commit, Machine string
		Cases                 []memoryResult `json:"cases"`
	}{b.begin.Format("2006-01-02 15:04"), machine.Commit(ctx, b.root), machine.Describe(), all}
	err := command.Write(out, b.output, rep, func() string {
		return fmt.Sprintf("Memory needed for %.0f %% of the throughput: TaskManager + master; %s, commit %s, %s\n%s", 100*keeps, rep.Date, rep.Commit, rep.Machine, memoryText(all))
	})
	return errors.Join(err, failed)
}

func memoryText(all []memoryResult) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "\n%s: %s\n", r.Name, r.Title)
		for _, n := range r.Needs {
			if r.OnlyMatched && n.Engine == thalweg {
				continue
			}
			fmt.Fprintf(&b, "  %-8s %5d MiB = %d + %d; %s events/s, %.0f %% of %s with %d + %d MiB; own memory of the TaskManager %d MiB\n", n.Engine, n.Need.sum()>>20, n.Need.TaskManager>>20, n.Need.Master>>20,
				thousands(n.Need.Throughput), 100*n.Need.Kept, thousands(n.Plenty.Throughput), n.Plenty.TaskManager>>20, n.Plenty.Master>>20, n.Need.Memory.Anon>>20)
		}
		if len(r.Needs) == 2 && !r.OnlyMatched {
			writeRatio(&b, r.ratio(r.Needs[0].Need), "each keeps its own throughput")
		}
		if m := r.Matched; m != nil {
			fmt.Fprintf(&b, "  thalweg  %5d MiB = %d + %d for Flink's throughput: %s events/s\n", m.sum()>>20, m.TaskManager>>20, m.Master>>20, thousands(m.Throughput))
			writeRatio(&b, r.ratio(*m), "both keep Flink's throughput")
		}
		if r.Error != "" {
			fmt.Fprintf(&b, "  FAILED   %s\n", r.Error)
		}
	}
	return b.String()
}

func writeRatio(b *strings.Builder, ratio float64, of string) {
	verdict := "reached"
	if ratio > goalOfMemory {
		verdict = "missed"
	}
	fmt.Fprintf(b, "  ratio    %.2f, %s (goal: at most %.2f): %s\n", ratio, of, goalOfMemory, verdict)
}

// needs runs a case's search on both sides, and on ours once more for the throughput of the other one.
func (b *bench) needs(ctx context.Context, c testCase) (memoryResult, error) {
	r := memoryResult{Name: c.name, Title: c.title, OnlyMatched: b.match}
	b.logf("%s", c.title)
	if c.local.prepare != nil {
		if err := c.local.prepare(ctx, b); err != nil {
			return r, err
		}
	}
	dir := filepath.Join(b.dir, strings.ReplaceAll(c.name, "/", "-"))
	for _, side := range []string{thalweg, peer} {
		if b.only != "" && b.only != side {
			continue
		}
		events := b.scaled(c.events[side])
		if _, err := b.expected(c, events); err != nil {
			return r, err
		}
		s := search{b: b, c: c, side: side, dir: dir, events: events, need: need{Engine: side}}
		err := s.plenty(ctx)
		if err == nil && !(b.match && side == thalweg) {
			err = s.shrink(ctx)
		}
		r.Needs = append(r.Needs, s.need)
		if err != nil {
			return r, err
		}
	}
	if len(r.Needs) < 2 || r.Needs[0].Plenty.Throughput <= r.Needs[1].Plenty.Throughput {
		return r, nil
	}
	theirs := r.Needs[1].Plenty.Throughput
	events := b.scaled(c.events[peer]) // state may grow with them: both sides get the same
	b.logf("  what ours needs for %.0f %% of Flink's %s events/s, over %s events:", 100*keeps, thousands(theirs), thousands(float64(events)))
	s := search{b: b, c: c, side: thalweg, dir: dir, events: events, keep: theirs, need: r.Needs[0]}
	err := s.shrink(ctx)
	r.Needs[0].Trials, r.Matched = s.need.Trials, &s.need.Need
	return r, err
}

// search is the search of one engine.
type search struct {
	b      *bench
	c      testCase
	side   string
	dir    string
	events int64
	keep   float64 // throughput that counts as whole, in events a second
	need   need
}

// ladder are the sizes between two, ascending.
func ladder(least, most int64) []int64 {
	const unit = 4 << 20
	var all []int64
	for x := float64(least); int64(x) < most; x *= step {
		all = append(all, (int64(x)+unit-1)/unit*unit)
	}
	return append(all, most)
}

// plenty runs the job with plenty of memory, which is the largest need.
func (s *search) plenty(ctx context.Context) error {
	in := memoryBounds[s.side]
	for range 2 { // the better one counts
		t, err := s.try(ctx, in.plenty)
		if err != nil {
			return err
		}
		if t.Throughput == 0 {
			return fmt.Errorf("%s fails with plenty of memory: %s", s.side, t.Failure)
		}
		if t.Throughput > s.need.Plenty.Throughput {
			t.Kept = 1
			s.need.Plenty, s.keep = t, t.Throughput
		}
	}
	s.need.Need = s.need.Plenty
	return nil
}

// shrink goes from the sizes that are known to be enough to smaller ones.
func (s *search) shrink(ctx context.Context) error {
	in := memoryBounds[s.side]
	for _, part := range []func(*sizes) *int64{func(z *sizes) *int64 { return &z.TaskManager }, func(z *sizes) *int64 { return &z.Master }} {
		least := in.least
		steps := ladder(*part(&least), *part(&s.need.Need.sizes))
		lo, hi := 0, len(steps)-1 // the last one is known to be enough
		for lo < hi {
			mid := (lo + hi) / 2
			z := s.need.Need.sizes
			*part(&z) = steps[mid]
			t, err := s.enough(ctx, z)
			if err != nil {
				return err
			}
			if t.Kept >= keeps {
				hi, s.need.Need = mid, t
			} else {
				lo = mid + 1
			}
		}
	}
	return nil
}

// enough tries some sizes; those that almost keep the throughput get up to two more runs.
func (s *search) enough(ctx context.Context, z sizes) (best trial, err error) {
	for range 3 {
		t, err := s.try(ctx, z)
		if err != nil {
			return t, err
		}
		if t.Kept >= best.Kept {
			best = t
		}
		if best.Kept >= keeps || best.Kept < keeps-0.15 {
			break
		}
	}
	return best, nil
}

// try runs the job once. The error is that of a search that cannot go on; a job that fails for lack of memory is a result.
func (s *search) try(ctx context.Context, z sizes) (trial, error) {
	t := trial{sizes: z}
	run := s.ours
	if s.side == peer {
		run = s.theirs
	}
	took, err := run(ctx, &t)
	switch {
	case ctx.Err() != nil:
		return t, context.Cause(ctx)
	case err != nil:
		t.Failure = err.Error()
	default:
		t.Throughput = float64(s.events) / took.Seconds()
		if s.keep > 0 {
			t.Kept = t.Throughput / s.keep
		}
	}
	s.need.Trials = append(s.need.Trials, t)
	s.b.logf("  %-8s %4d + %4d MiB: %s events/s (%.0f %%), own memory %d + %d MiB %s", s.side, z.TaskManager>>20, z.Master>>20, thousands(t.Throughput), 100*t.Kept, t.Memory.Anon>>20, t.MasterMem.Anon>>20, firstLine(t.Failure))
	return t, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line[:min(len(line), 200)]
}

func size(n int64) string { return strconv.FormatInt(n, 10) + "b" }

// jobWait bounds a run: a collector that works all the time may take for ever.
const jobWait = 3 * time.Minute

// ours runs the job in containers of a YARN that is none.
func (s *search) ours(ctx context.Context, t *trial) (_ time.Duration, err error) {
	results, err := freshDir(s.dir, "thalweg-results")
	if err != nil {
		return 0, err
	}
	scratch, err := freshDir(s.dir, "thalweg")
	if err != nil {
		return 0, err
	}
	program, err := s.b.program(ctx, s.c.local.program)
	if err != nil {
		return 0, err
	}
	conf := config.Configuration{
		"taskmanager.memory.process.size": size(t.TaskManager), "jobmanager.memory.process.size": size(t.Master), "taskmanager.numberOfTaskSlots": "1",
		"parallelism.default": strconv.Itoa(s.c.parallelism), "restart-strategy.type": "none",
	}
	maps.Copy(conf, s.c.checkpoints(thalweg, filepath.Join(scratch, "checkpoints")))
	a, err := confined.Launch(ctx, confined.Spec{Dir: scratch, Lib: s.b.bin, Program: program, Args: s.c.local.args(thalweg, s.events, results), Config: conf})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, a.Close(), os.RemoveAll(scratch)) }()
	err = a.End(ctx, jobWait)
	t.Memory, t.MasterMem = a.Memory(false), a.Memory(true)
	if err != nil {
		return 0, err
	}
	return s.took(results)
}

// theirs starts Flink's cluster in two groups, lets a run of half the length warm it, and runs the job.
func (s *search) theirs(ctx context.Context, t *trial) (_ time.Duration, err error) {
	scratch, err := freshDir(s.dir, "flink")
	if err != nil {
		return 0, err
	}
	groups := map[string]*cgroup.Group{}
	enter := flink.Enter{}
	defer func() {
		for _, g := range groups {
			err = errors.Join(err, g.Close(context.WithoutCancel(ctx)))
		}
		err = errors.Join(err, os.RemoveAll(scratch))
	}()
	for name, n := range map[string]int64{flink.TaskManagerName: t.TaskManager, flink.JobManagerName: t.Master} {
		g, err := confined.NewGroup(name, n)
		if err != nil {
			return 0, err
		}
		groups[name], enter[name] = g, g.Enter()
	}
	settings := map[string]string{
		"taskmanager.memory.process.size": size(t.TaskManager), "jobmanager.memory.process.size": size(t.Master), "taskmanager.numberOfTaskSlots": strconv.Itoa(s.c.parallelism),
	}
	if s.c.backend[peer] != "rocksdb" {
		settings["taskmanager.memory.managed.fraction"] = "0" // nothing uses it
	}
	maps.Copy(settings, s.c.checkpoints(peer, filepath.Join(scratch, "checkpoints")))
	ctx, cancel := context.WithTimeout(ctx, 2*jobWait)
	defer cancel()
	f, err := s.b.flink.StartIn(ctx, filepath.Join(scratch, "cluster"), settings, enter)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	var took time.Duration
	for _, events := range []int64{s.events / 2, s.events} {
		results, err := freshDir(s.dir, "flink-results")
		if err != nil {
			return 0, err
		}
		id, err := f.Submit(ctx, s.c.local.class, s.c.parallelism, s.c.local.args(peer, events, results)...)
		if err != nil {
			return 0, err
		}
		_, err = f.Wait(ctx, id)
		t.Memory, t.MasterMem = groups[flink.TaskManagerName].Read(), groups[flink.JobManagerName].Read()
		if err != nil {
			return 0, err
		}
		if events == s.events {
			if took, err = s.took(results); err != nil {
				return 0, err
			}
		}
	}
	return took, nil
}

// took checks the results and says how long the sinks were open.
func (s *search) took(results string) (time.Duration, error) {
	if err := s.b.check(s.c, s.events, results); err != nil {
		return 0, err
	}
	return tally.Took(results, s.c.parallelism)
}
