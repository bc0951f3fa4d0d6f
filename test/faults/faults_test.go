package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/test/eos"
	"github.com/thalweg/thalweg/test/rig"
)

var (
	seed    = flag.Uint64("seed", 0, "seed of the run; 0 draws one")
	records = flag.Int64("records", 20_000, "input records of each run")
	each    = flag.Int("each", 1, "kills of each process")
	broker  = flag.Int("broker", 1, "restarts of the Kafka broker")
	rm      = flag.Int("rm", 1, "restarts of the ResourceManager")
	binDir  = flag.String("bin", "../../bin", "folder with the built binaries")
	backend = flag.String("backend", "hashmap", "state backend")
	history = flag.String("history", "", "file that the run is recorded to, for thalweg-check judge; a temporary one when empty")
)

var cluster *rig.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	code := func() int {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		c, release, err := rig.Shared(ctx, rig.Options{Progress: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		cluster = c
		code := m.Run()
		if err := release(context.WithoutCancel(ctx)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreCurrent()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Results are exactly once whatever dies: workers, TaskManagers, the application master, the broker, the ResourceManager.
func TestFaults(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1e6
	}
	t.Logf("repeat with: make test-kills SEED=%d", *seed)
	bin, file := binaries(t, "build"), historyFile(t)
	counts := map[Kind]int{Worker: *each, TaskManager: *each, ApplicationMaster: *each, Broker: *broker, ResourceManager: *rm}
	ctx, cancel := context.WithTimeout(t.Context(), 35*time.Minute)
	defer cancel()
	rep, err := Run(ctx, Options{Cluster: cluster, Bin: bin, Seed: *seed, Records: *records, Backend: *backend, Faults: counts, History: file, Log: os.Stderr})
	judged(t, rep, err)
	if *records <= 20_000 && len(rep.Recoveries) > 0 { // the evidence of this very run would have shown each known kind of fault
		for _, m := range eos.Mutants() {
			if bad := m.Apply(rep.History, rand.New(rand.NewPCG(*seed, 3))); bad == nil {
				t.Errorf("%s: the history has no evidence to spoil", m.Name)
			} else if eos.Judge(bad).OK {
				t.Errorf("%s is not caught", m.Name)
			}
		}
	}
	of := map[Kind][]time.Duration{}
	for _, r := range rep.Recoveries {
		of[r.Kind] = append(of[r.Kind], r.Output)
		if r.Kind == ApplicationMaster && !r.Same {
			t.Error("the next application master does not have the containers of the last one")
		}
	}
	goals := map[Kind]string{Worker: "2 s", TaskManager: "4 s", ApplicationMaster: "5 s"}
	fmt.Fprintf(os.Stderr, "\n%-20s %5s %10s %10s %10s %6s\n", "output again after", "n", "median", "least", "most", "goal")
	for k, n := range counts {
		d := of[k]
		slices.Sort(d)
		if len(d) != n {
			t.Errorf("%d faults of %s, want %d", len(d), k, n)
		}
		if n > 0 && len(d) > 0 {
			fmt.Fprintf(os.Stderr, "%-20s %5d %10v %10v %10v %6s\n", k, n, d[len(d)/2].Round(time.Millisecond), d[0].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond), goals[k])
		}
	}
	noneLeft(ctx, t, rep.App)
}

// binaries is the folder of the programs, which a target of make fills.
func binaries(t *testing.T, target string) string {
	t.Helper()
	bin, err := filepath.Abs(*binDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(bin, "thalweg")); err != nil {
		t.Fatalf("no binaries: %v; run make %s first", err, target)
	}
	return bin
}

// historyFile is where the run's history goes.
func historyFile(t *testing.T) string {
	t.Helper()
	if *history != "" {
		return *history
	}
	return filepath.Join(t.TempDir(), "history.jsonl")
}

// judged prints the verdict of a run, which must have come to its end with every check done.
func judged(t *testing.T, rep *Report, err error) {
	t.Helper()
	if rep != nil && rep.Verdict != nil {
		if werr := rep.Verdict.Text(os.Stderr); werr != nil {
			t.Error(werr)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rep.Verdict.Checks {
		if !c.Checked {
			t.Errorf("check %d (%s) was not done", c.Number, c.Name)
		}
	}
}

// noneLeft checks that no process of an application that has ended lives on.
func noneLeft(ctx context.Context, t *testing.T, app string) {
	t.Helper()
	var left []process
	if err := until(ctx, time.Minute, "the end of all processes", func(context.Context) (bool, error) {
		var err error
		left, err = processes(app)
		return len(left) == 0, err
	}); err != nil {
		t.Errorf("processes left after the run: %v %v", left, err)
	}
}
