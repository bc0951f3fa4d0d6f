package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Bounds of a run, in steps.
const (
	mostSteps = 60_000 // in all
	calmAfter = 12_000 // from here on nothing goes wrong any more
)

// phase is one job of the run.
type phase struct {
	number int
	job    graph.JobID
	par    [3]int
	from   string
	claim  bool
	end    *ending
}

type ending struct {
	state   scheduler.JobState
	stopped string // savepoint that it was stopped with
}

// World is a run.
type World struct {
	plan *Plan
	r    *rand.Rand
	now  int64
	step int

	mem    *mem.FileSystem
	fs     *fault.FileSystem
	reg    *fs.Registry // of fs
	clean  *fs.Registry // of mem, for the oracles
	net    *network.Environment
	conf   config.Configuration
	in     [][]Event // by split
	broker *Broker

	phase        *phase
	masters      []*master
	newest       int64 // epoch of the newest
	wanted       bool  // another master is to take over
	managers     []*manager
	managersMade int
	commits      []*commitRequest // that the broker has, or whose answer is under way
	current      *Task            // whose code runs
	weights      map[string]int

	pending   []strike
	counts    map[string]int
	struck    bool
	calm      bool
	lastFault int
	frozen    map[*Task]int64 // until then
	slowUntil int64
	changed   bool

	numbers    map[int64]int64 // epochs of the checkpoints of this phase
	pointer    int64           // latest, of this phase
	pointerDir string          //
	leaves     bool            // files may be left: who would have removed them died
	zombies    bool            // there were some in this phase
	lost       bool            // a task found a transaction lost
	over       bool

	violation string
	lines     []string
	hash      uint64
	reached   map[string]int
}

// newWorld makes the world of a plan.
func newWorld(p *Plan) *World {
	w := &World{plan: p, r: rand.New(rand.NewPCG(p.Seed, 2)), now: 1_000_000, counts: map[string]int{}, frozen: map[*Task]int64{}, //nolint:gosec // repeatable on purpose
		reached: map[string]int{}, weights: map[string]int{}}
	w.mem = mem.New("sim")
	w.fs = fault.New(w.mem, w.rules()...)
	open := func(f fs.FileSystem) *fs.Registry {
		reg := &fs.Registry{}
		reg.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return f, nil })
		return reg
	}
	w.reg, w.clean = open(w.fs), open(w.mem)
	w.net = network.New(network.Config{BufferSize: 64 + w.r.IntN(200), BuffersPerChannel: 1 << 30, PartitionTimeout: time.Hour}, zerolog.Nop())
	w.conf = config.Configuration{}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	config.CheckpointInterval.Set(w.conf, ms(p.Every))
	config.CheckpointTimeout.Set(w.conf, ms(600))
	config.CheckpointDir.Set(w.conf, "mem://sim/checkpoints")
	config.CheckpointsRetained.Set(w.conf, p.Retain)
	config.CheckpointsAtOnce.Set(w.conf, p.AtOnce)
	overtaking(w.conf, p.Overtake)
	config.TolerableFailures.Set(w.conf, 1<<20)
	config.WatermarkInterval.Set(w.conf, ms(20))
	config.BufferTimeout.Set(w.conf, ms(10))
	config.ExponentialInitial.Set(w.conf, ms(20))
	config.ExponentialMax.Set(w.conf, ms(300))
	config.ExponentialJitter.Set(w.conf, 0)
	if !p.Inline || p.Tables {
		config.MemoryThreshold.Set(w.conf, 16)
	}
	w.in = input(rand.New(rand.NewPCG(p.Seed, 3)), p.Splits, p.Records) //nolint:gosec // repeatable on purpose
	w.broker = newBroker(w)
	w.nextPhase("", false)
	return w
}

func (w *World) nextPhase(from string, claim bool) {
	n := 0
	if w.phase != nil {
		n = w.phase.number + 1
	}
	id, _ := graph.ParseID(fmt.Sprintf("%032x", n+1))
	w.phase = &phase{number: n, job: graph.JobID{ID: id}, par: w.plan.Phases[min(n, len(w.plan.Phases)-1)], from: from, claim: claim}
	w.numbers = map[int64]int64{}
	w.pointer, w.pointerDir, w.leaves, w.zombies = 0, "", false, false
	w.trace("phase %d: parallelism %v from %q", n, w.phase.par, from)
	if n > 0 {
		w.sometimes("a job went on from what another one had left")
	}
}

// name is a name that none was before.
func (w *World) name() string { return fmt.Sprintf("%d-%d", w.phase.number, w.step) }

// randomNames are those of files, and long ids: no two runs have the same.
var randomNames = regexp.MustCompile(`[0-9a-f]{12,}|: read mem:.*`)

func (w *World) trace(format string, args ...any) {
	line := strconv.Itoa(w.step) + " " + strconv.FormatInt(w.now, 10) + " " + randomNames.ReplaceAllString(fmt.Sprintf(format, args...), "*")
	h := fnv.New64a()
	fmt.Fprintf(h, "%d%s", w.hash, line)
	w.hash = h.Sum64()
	w.lines = append(w.lines, line)
}

// sometimes notes that a rare state was reached.
func (w *World) sometimes(what string) { w.reached[what]++ }

// violate ends the run: an oracle says no.
func (w *World) violate(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.trace("VIOLATION: %s", w.violation)
	}
}

// rules let the plan's faults strike at operations of the file system.
func (w *World) rules() []fault.Rule {
	var k kind
	is := func(want kind) fault.Predicate { return func(fault.Event) bool { return k == want } }
	return []fault.Rule{
		fault.When(func(e fault.Event) bool { k = w.strike("fs:" + string(e.Op)); return false }, fault.Fail(errUnavailable)),
		fault.When(is(ioError), fault.Fail(errUnavailable)),
		fault.When(is(answerLost), fault.FailAfter(errUnavailable)),
		fault.When(is(torn), fault.Torn(3, errUnavailable)),
	}
}

// leader is the newest master, nil when it is dead.
func (w *World) leader() *master {
	if n := len(w.masters); n > 0 && w.masters[n-1].epoch == w.newest {
		return w.masters[n-1]
	}
	return nil
}

// run takes steps to the end of the run.
func (w *World) run() {
	defer w.shutdown()
	for w.violation == "" && !w.over {
		w.step++
		if w.step >= calmAfter || w.counts["step"] > 0 && w.spent() {
			w.beCalm()
		}
		if w.step > mostSteps {
			w.violate("no progress: the job has not ended after %d steps, the last fault was at step %d", w.step, w.lastFault)
			return
		}
		w.point("step")
		w.applyFaults()
		if !w.calm {
			w.now += w.r.Int64N(3)
		} else if w.r.IntN(10) == 0 { // nobody is too slow any more
			w.now++
		}
		w.act()
		w.applyFaults()
		w.reap()
	}
}

// spent reports whether all faults that come by steps are behind.
func (w *World) spent() bool {
	for _, f := range w.plan.Faults {
		if f.point == "step" && f.nth > w.counts["step"] {
			return false
		}
	}
	return w.step > 6000
}

func (w *World) beCalm() {
	if !w.calm {
		w.calm = true
		w.trace("faults stop")
		for k := range w.weights {
			w.weights[k] = 8
		}
	}
}

// reap forgets what is dead and looks whether the phase has ended.
func (w *World) reap() {
	if m := w.leader(); m != nil && !m.dead && m.result != nil && m.over() && !m.fenced && m.result.State != scheduler.JobSuspended {
		w.phaseOver(m, m.phase.end)
	}
	w.masters = slices.DeleteFunc(w.masters, func(m *master) bool {
		return m.dead || (m.result != nil && m.over() && (m != w.leader() || m.fenced || m.result.State == scheduler.JobSuspended))
	})
	w.managers = slices.DeleteFunc(w.managers, func(tm *manager) bool { return !tm.alive })
}

// phaseOver goes on with the next job, or ends the run. m is the master that ended the job, nil when it died then.
func (w *World) phaseOver(m *master, e *ending) {
	if w.over || w.violation != "" {
		return
	}
	w.trace("phase %d is over: %s, stopped with %q", w.phase.number, e.state, e.stopped)
	dir, id := w.pointerDir, w.pointer
	switch {
	case e.state == scheduler.JobCanceled && m != nil:
		var kept []string
		for _, c := range m.coord.Retained() {
			kept = append(kept, c.Dir)
		}
		w.checkLeft(kept)
	case e.stopped != "" && m != nil:
		w.checkCommitted()
	}
	for _, tm := range w.managers {
		tm.link = nil
		if tm.zombie {
			tm.kill("the job is over")
		} else if tm.worker != nil {
			tm.worker.kill()
		}
	}
	for _, x := range w.masters {
		x.dead = true
	}
	w.masters, w.wanted = nil, false
	switch {
	case e.state == scheduler.JobFailed:
		if !w.mayLose() {
			w.violate("the job failed for good")
		}
		w.sometimes("a job failed since a transaction had timed out")
		w.over = true
	case e.state == scheduler.JobCanceled && id == 0:
		w.trace("cancelled before its first checkpoint")
		w.nextPhase(w.phase.from, w.phase.claim && w.phase.from != "")
	case e.state == scheduler.JobCanceled:
		w.nextPhase(dir, w.plan.Claim)
	case e.stopped != "":
		w.nextPhase(e.stopped, false)
	default:
		w.checkEnd()
		w.over = true
	}
}

// mayLose reports whether the broker has aborted a transaction of a completed checkpoint.
func (w *World) mayLose() bool {
	return slices.ContainsFunc(w.broker.txns, func(t *txn) bool { return t.timedOut && t.promised })
}

func (w *World) shutdown() {
	for _, tm := range w.managers {
		tm.kill("the run is over")
	}
	if err := w.net.Close(); err != nil {
		w.violate("close the exchange: %v", err)
	}
}

// deployed is told of each deployment.
func (w *World) deployed(m *master, restored int64) {
	w.point("deployed")
	if restored != 0 {
		w.sometimes("tasks were restored from a checkpoint")
	}
	if m.epoch > 1 && restored != 0 {
		w.sometimes("a new application master restored the job")
	}
}

// applyFaults lets what was struck in the last step come true.
func (w *World) applyFaults() {
	for len(w.pending) > 0 {
		f := w.pending[0]
		w.pending = w.pending[1:]
		w.apply(f)
	}
}

func (w *World) apply(f strike) {
	m := w.leader()
	var tms []*manager
	var tasks []*Task
	for _, tm := range w.managers {
		if !tm.alive {
			continue
		}
		if !tm.zombie {
			tms = append(tms, tm)
		}
		if tm.worker != nil {
			tasks = append(tasks, tm.worker.sorted()...)
		}
	}
	switch f.kind {
	case killWorker, killManager, isolate:
		if len(tms) == 0 {
			return
		}
		tm := tms[f.arg%len(tms)]
		switch f.kind {
		case killWorker:
			tm.killWorker("fault")
		case killManager:
			tm.kill("fault")
		default:
			tm.isolate()
		}
	case killMaster:
		if m != nil {
			m.kill("fault")
		}
	case usurp:
		w.wanted = w.wanted || m != nil
		w.zombies = true
	case killProcess:
		if m != nil && !m.dead {
			m.killProcess()
		}
	case failTask:
		if len(tasks) > 0 {
			tasks[f.arg%len(tasks)].fail(fmt.Errorf("simulated: user code failed"))
		}
	case freeze:
		if len(tasks) > 0 {
			w.frozen[tasks[f.arg%len(tasks)]] = w.now + int64(f.arg%1500)
		}
	case setClock:
		for i, tm := range w.managers {
			if tm.worker != nil && (i+f.arg)%2 == 0 {
				tm.worker.skew += []int64{-3_600_000, 3_600_000}[f.arg/2%2]
			}
		}
	case slow:
		w.slowUntil = w.now + int64(f.arg%1500)
	case timeout:
		if open := w.broker.opened(); len(open) > 0 {
			t := open[f.arg%len(open)]
			if t.prepared == 0 {
				w.sometimes("a transaction timed out while it was written")
			} else {
				w.sometimes("a prepared transaction timed out")
			}
			t.timedOut = true
			w.broker.end(t, txnAborted)
			w.broker.epoch[t.id]++
		}
	case savepoint_, checkpoint_:
		if m != nil && m.result == nil && !m.dead {
			m.manual(map[kind]coordinator.Kind{savepoint_: coordinator.Savepoint, checkpoint_: coordinator.Manual}[f.kind], f.arg%3 == 0)
		}
	case rescale_:
		if m != nil && !m.dead && m.result == nil {
			m.rescale(f.arg)
		}
	case stop_, cancel_:
		switch {
		case m == nil || m.dead || m.result != nil || m.phase.number+1 >= len(w.plan.Phases):
		case f.kind == stop_:
			m.stop(false)
		default:
			m.step(scheduler.CancelJob{})
		}
	}
}
