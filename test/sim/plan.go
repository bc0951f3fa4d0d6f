package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind is what goes wrong, or is asked for.
type kind int

const (
	none kind = iota
	ioError
	answerLost // it was done, and looks as if not
	torn
	killWorker
	killManager
	isolate // a TaskManager is cut off and goes on as a zombie
	killMaster
	usurp // another application master takes over while the present one lives on
	killProcess
	failTask
	freeze // a task does nothing for a while
	slow   // no file work gets done for a while
	timeout
	savepoint_
	checkpoint_
	stop_
	cancel_
	rescale_
	setClock // of a worker's machine, an hour forward or back
)

var kindNames = []string{"none", "io-error", "answer-lost", "torn-write", "kill-worker", "kill-taskmanager", "zombie-taskmanager", "kill-master", "zombie-master",
	"kill-coordinator-process", "fail-task", "freeze-task", "slow-storage", "transaction-timeout", "savepoint", "checkpoint", "stop-with-savepoint", "cancel", "rescale", "set-clock"}

func (k kind) String() string { return kindNames[k] }

// fault strikes when its point is passed for the nth time.
type strike struct {
	point string
	nth   int
	kind  kind
	arg   int
}

func (f strike) String() string { return fmt.Sprintf("%s at %s %d", f.kind, f.point, f.nth) }

var errUnavailable = errors.New("simulated: not available")

// Plan is all that a seed decides beside the order of steps.
type Plan struct {
	Seed     uint64
	Splits   int
	Pipes    int // pipelines that are not connected, each with the splits of every second number when there are two
	Records  int
	Phases   [][3]int // parallelism of source, keyed functions, sink
	Claim    bool     // of a cancelled job's checkpoint
	Slots    int      // of a TaskManager
	Retain   int      // completed checkpoints
	Every    int      // ms between checkpoints
	Inline   bool     // state stands in the metadata
	AtOnce   int      // checkpoints at a time
	Overtake int      // ms after which barriers overtake, -1: never
	Tables   bool     // checkpoints share files
	Adopt    bool     // a new application master goes on with the tasks of the one before
	Scale    int      // how the parallelism changes in place: bit 0 with a checkpoint for it, bit 1 with what slots there are
	Faults   []strike
	kept     []int // which of the seed's these are, nil for all
}

func (p *Plan) String() string {
	var b strings.Builder
	if p.Pipes > 1 {
		fmt.Fprintf(&b, "%d pipelines of ", p.Pipes)
	}
	fmt.Fprintf(&b, "%d splits of %d records, parallelisms %v, %d slots per TaskManager, a checkpoint each %d ms", p.Splits, p.Records, p.Phases, p.Slots, p.Every)
	if p.AtOnce > 1 {
		fmt.Fprintf(&b, ", %d at a time", p.AtOnce)
	}
	if p.Overtake >= 0 {
		fmt.Fprintf(&b, ", barriers overtake after %d ms", p.Overtake)
	}
	if p.Tables {
		b.WriteString(", shared tables")
	}
	for i := range p.Faults {
		fmt.Fprintf(&b, "\n  %s", p.name(i))
	}
	return b.String()
}

func (p *Plan) name(i int) string {
	n := i
	if p.kept != nil {
		n = p.kept[i]
	}
	return fmt.Sprintf("fault %d: %s", n, p.Faults[i])
}

// places are the named points with how often a run passes them, about.
var places = []struct {
	name  string
	often int
	kinds []kind
}{
	{"step", 2500, []kind{killWorker, killManager, isolate, killMaster, usurp, killProcess, failTask, freeze, slow, timeout, savepoint_, checkpoint_, stop_, cancel_, rescale_, setClock}},
	{"step", 1200, []kind{stop_, cancel_, freeze, slow, savepoint_, checkpoint_, rescale_, rescale_}},
	{"triggered", 12, []kind{killWorker, killMaster, killProcess, failTask, freeze, isolate}},
	{"acked", 60, []kind{killWorker, killManager, killMaster, usurp}},
	{"uploaded", 60, []kind{killWorker, isolate, killMaster}},
	{"metadata", 10, []kind{killMaster, usurp, killWorker, slow, timeout}},
	{"pointer", 10, []kind{killMaster, usurp, killWorker, killManager, slow}},
	{"notified", 10, []kind{killMaster, killWorker, isolate, usurp, failTask}},
	{"commit-applied", 25, []kind{killWorker, killMaster, usurp, isolate}},
	{"commit-answered", 25, []kind{killWorker, killMaster}},
	{"restore-commit", 12, []kind{answerLost, killWorker, killMaster}},
	{"opened", 40, []kind{killWorker, killManager, killMaster, usurp}},
	{"deployed", 4, []kind{killWorker, killMaster, usurp, killProcess}},
	{"end-job", 2, []kind{killMaster, usurp}},
	{"ended", 2, []kind{killMaster, usurp}},
	{"fs:create", 120, []kind{ioError, answerLost, killMaster, killWorker}},
	{"fs:write", 120, []kind{ioError, torn, answerLost}},
	{"fs:close", 120, []kind{ioError, answerLost, killMaster}},
	{"fs:rename", 30, []kind{ioError, answerLost, killMaster, usurp}},
	{"fs:remove", 30, []kind{ioError, killMaster}},
	{"fs:stat", 30, []kind{ioError}},
	{"fs:list", 30, []kind{ioError, killMaster}},
	{"fs:open", 60, []kind{ioError}},
	{"fs:read", 60, []kind{ioError}},
}

// NewPlan draws the plan of a seed.
func NewPlan(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable on purpose
	p := &Plan{Seed: seed, Splits: 1 + r.IntN(4), Records: 20 + r.IntN(60), Pipes: 1 + r.IntN(3)/2, Claim: r.IntN(2) == 0, Slots: 1 + r.IntN(2), Retain: 1 + r.IntN(3),
		Every: 30 + r.IntN(200), Inline: r.IntN(2) == 0}
	for range 1 + r.IntN(3) {
		p.Phases = append(p.Phases, [3]int{1 + r.IntN(3), 1 + r.IntN(4), 1 + r.IntN(3)})
	}
	p.Scale = r.IntN(4)
	p.AtOnce, p.Overtake, p.Tables = 1, -1, r.IntN(2) == 0
	switch r.IntN(3) {
	case 0:
		p.AtOnce, p.Every = 2+r.IntN(3), 5+r.IntN(60)
	case 1:
		p.Overtake = []int{0, 0, 20, 100, 300}[r.IntN(5)]
		if r.IntN(2) == 0 {
			p.Every = 5 + r.IntN(40)
		}
	}
	// A part of the places and of the kinds each time, so that some runs have many of the same.
	some := slices.Clone(places)
	r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:2+r.IntN(len(some)-2)]
	for range r.IntN(10) {
		at := some[r.IntN(len(some))]
		p.Faults = append(p.Faults, strike{at.name, 1 + r.IntN(at.often), at.kinds[r.IntN(len(at.kinds))], r.IntN(1 << 20)})
	}
	if p.Pipes > 1 && r.IntN(2) == 0 {
		p.Faults = append(p.Faults, strike{"step", 200 + r.IntN(1500), []kind{failTask, failTask, killWorker}[r.IntN(3)], r.IntN(1 << 20)})
	}
	for range p.AtOnce - 1 {
		p.Faults = append(p.Faults, strike{"step", 100 + r.IntN(1500), []kind{savepoint_, savepoint_, checkpoint_}[r.IntN(3)], r.IntN(1 << 20)})
	}
	if len(p.Phases) > 1 && r.IntN(4) > 0 {
		p.Faults = append(p.Faults, strike{"step", 200 + r.IntN(1500), []kind{stop_, stop_, cancel_}[r.IntN(3)], r.IntN(1 << 20)})
	}
	if p.Adopt = r.IntN(3) > 0; p.Adopt && r.IntN(2) == 0 {
		at := 200 + r.IntN(2000)
		p.Faults = append(p.Faults, strike{"step", at, []kind{killMaster, killMaster, usurp}[r.IntN(3)], 0})
		switch r.IntN(4) {
		case 0: // something dies while nobody leads
			p.Faults = append(p.Faults, strike{"step", at + r.IntN(20), []kind{killWorker, killManager, isolate, failTask}[r.IntN(4)], r.IntN(1 << 20)})
		case 1, 2: // or in the midst
			p.Faults = append(p.Faults, strike{[]string{"adopting", "adopted"}[r.IntN(2)], 1, []kind{killMaster, usurp, killWorker, killManager, isolate, killProcess, failTask, freeze}[r.IntN(8)], r.IntN(1 << 20)})
		}
	}
	return p
}

// strike tells what goes wrong at a point that is passed now.
func (w *World) strike(point string) kind {
	if w.calm {
		return none
	}
	w.counts[point]++
	for i, f := range w.plan.Faults {
		if f.point == point && f.nth == w.counts[point] {
			w.trace("%s", w.plan.name(i))
			w.sometimes("fault " + f.kind.String())
			w.struck, w.lastFault = true, w.step
			switch f.kind {
			case ioError, answerLost, torn:
				return f.kind
			default:
				w.pending = append(w.pending, f)
			}
		}
	}
	return none
}

// point passes a point whose faults are of the kind that strikes after the step.
func (w *World) point(name string) { w.strike(name) }
