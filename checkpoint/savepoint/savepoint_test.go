package savepoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func op(n byte) graph.OperatorID { return graph.OperatorID{ID: graph.ID{n}} }

func vertex(n byte, name string, p, maxP int, ops ...graph.Operator) graph.Vertex {
	return graph.Vertex{ID: graph.VertexID{ID: graph.ID{n}}, Name: name, Parallelism: p, MaxParallelism: maxP, Operators: ops}
}

func keyedState(n byte, uid string, p, maxP int) metadata.Operator {
	o := metadata.Operator{ID: op(n), UID: uid, Name: "Window", Parallelism: p, MaxParallelism: maxP}
	for i := range p {
		o.Subtasks = append(o.Subtasks, metadata.Subtask{Index: i, Keyed: []state.Handle{{Format: "canonical", Range: state.RangeOf(maxP, p, i)}}})
	}
	return o
}

func listState(n byte, uid string, items ...string) metadata.Operator {
	o := metadata.Operator{ID: op(n), UID: uid, Name: "Source", Parallelism: 1, MaxParallelism: 128}
	l := metadata.ListState{Name: "splits"}
	for _, it := range items {
		l.Items = append(l.Items, []byte(it))
	}
	o.Subtasks = []metadata.Subtask{{Lists: []metadata.ListState{l}}}
	return o
}

func misfits(t *testing.T, err error) []string {
	t.Helper()
	var m *MisfitError
	if !errors.As(err, &m) {
		t.Fatalf("%v, want a MisfitError", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is not one line", err)
	}
	return m.Misfits
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q does not say %q", text, p)
		}
	}
}

var (
	window = graph.Operator{ID: op(2), UID: "totals", Name: "Window", Keyed: true, Stateful: true}
	source = graph.Operator{ID: op(1), UID: "orders", Name: "Source", Source: true, Stateful: true, Coordinate: true}
)

func TestEverythingThatDoesNotFitIsSaidAtOnce(t *testing.T) {
	cp := metadata.Checkpoint{Operators: []metadata.Operator{
		keyedState(2, "totals", 2, 128), keyedState(3, "removed", 2, 128), listState(4, "mapper", "x"), keyedState(5, "was-keyed", 1, 64),
	}, Coordinators: map[graph.OperatorID][]byte{op(9): []byte("enumerator")}}
	g := graph.JobGraph{Vertices: []graph.Vertex{
		vertex(2, "Window", 2, 256, window),
		vertex(4, "Map", 2, 256, graph.Operator{ID: op(4), UID: "mapper", Name: "Map"}),
		vertex(5, "Process", 400, 256, graph.Operator{ID: op(5), UID: "was-keyed", Name: "Process", Stateful: true}),
	}}
	_, err := Check(cp, g, false)
	got := misfits(t, err)
	if len(got) != 6 {
		t.Fatalf("%d misfits, want 6:\n%s", len(got), strings.Join(got, "\n"))
	}
	contains(t, err.Error(), `"Window" (uid "totals") has max parallelism 256 in the job`, "stored with 128",
		`(uid "removed") has state in the checkpoint but is not in the job`, "--allowNonRestoredState (execution.state-recovery.ignore-unclaimed-state=true)",
		`"Map" (uid "mapper") has state in the checkpoint but keeps none`,
		`"Process" (uid "was-keyed") has keyed state in the checkpoint but is not keyed`,
		`vertex "Process" has parallelism 400, above its max parallelism, 256`,
		op(9).String())

	_, err = Check(cp, g, true)
	if got := misfits(t, err); len(got) != 3 {
		t.Fatalf("with --allowNonRestoredState %d misfits, want 3:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// The native form of another backend is refused before anything runs; the canonical one and the backend's own are not.
func TestBackendThatDoesNotReadTheForm(t *testing.T) {
	native := keyedState(2, "totals", 2, 128)
	for i := range native.Subtasks {
		native.Subtasks[i].Keyed[0].Format = "pebble"
	}
	cp := metadata.Checkpoint{Operators: []metadata.Operator{native, keyedState(3, "second", 1, 128), listState(1, "orders", "p0")}}
	second := graph.Operator{ID: op(3), UID: "second", Name: "Process", Keyed: true, Stateful: true}
	g := graph.JobGraph{Vertices: []graph.Vertex{vertex(1, "Source", 1, 128, source), vertex(2, "Window", 2, 128, window, second)}}
	if err := CheckBackend(cp, g, "pebble"); err != nil {
		t.Error(err)
	}
	err := CheckBackend(cp, g, "hashmap")
	if got := misfits(t, err); len(got) != 1 {
		t.Errorf("%q", got)
	}
	contains(t, err.Error(), `"Window" (uid "totals") is in the native form of state backend "pebble", which "hashmap" does not read; set state.backend.type to pebble`)
	if strings.Contains(err.Error(), "second") {
		t.Error(err)
	}
	if err := CheckBackend(cp, graph.JobGraph{Vertices: []graph.Vertex{vertex(1, "Source", 1, 128, source)}}, "hashmap"); err != nil {
		t.Errorf("state that is left behind: %v", err)
	}
}

// FLINK-40113: keyed state under another number of key groups is refused, with names and both numbers.
func TestMaxParallelism(t *testing.T) {
	second := graph.Operator{ID: op(3), UID: "second", Name: "Process", Keyed: true, Stateful: true}
	chained := metadata.Checkpoint{Operators: []metadata.Operator{keyedState(2, "totals", 1, 128), keyedState(3, "second", 1, 256)}}
	cp := metadata.Checkpoint{Operators: []metadata.Operator{listState(1, "orders", "p0"), keyedState(2, "totals", 2, 128)}}
	for name, c := range map[string]struct {
		cp      metadata.Checkpoint
		v       []graph.Vertex
		adopted map[byte]int
		says    []string
	}{
		"same":                          {cp: cp, v: []graph.Vertex{vertex(2, "w", 4, 128, window)}},
		"set to another":                {cp: cp, v: []graph.Vertex{vertex(2, "w", 2, 256, window)}, says: []string{`"Window" (uid "totals")`, "256", "128"}},
		"unset adopts":                  {cp: cp, v: []graph.Vertex{vertex(2, "w", 100, 0, window)}, adopted: map[byte]int{2: 128}},
		"unset, parallelism above":      {cp: cp, v: []graph.Vertex{vertex(2, "w", 200, 0, window)}, says: []string{"parallelism 200", "128", "lower the parallelism"}},
		"unset without keyed state":     {cp: cp, v: []graph.Vertex{vertex(1, "s", 200, -1, source), vertex(2, "w", 2, 128, window)}, adopted: map[byte]int{1: 512}},
		"no keyed state may change":     {cp: cp, v: []graph.Vertex{vertex(1, "s", 2, 4096, source), vertex(2, "w", 2, 128, window)}},
		"chain with two numbers, set":   {cp: chained, v: []graph.Vertex{vertex(2, "w", 2, 128, window, second)}, says: []string{`"Process" (uid "second")`, "256"}},
		"chain with two numbers, unset": {cp: chained, v: []graph.Vertex{vertex(2, "w", 2, 0, window, second)}, says: []string{`"Window" (uid "totals")`, `"Process" (uid "second")`, "128 and 256"}},
		"new job":                       {v: []graph.Vertex{vertex(1, "s", 3, 0, source)}, adopted: map[byte]int{1: 128}},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.JobGraph{Vertices: c.v}
			adopted, err := Check(c.cp, g, true)
			if c.says != nil {
				misfits(t, err)
				contains(t, err.Error(), c.says...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(adopted) != len(c.adopted) {
				t.Fatalf("adopted %v, want %v", adopted, c.adopted)
			}
			applied := adopted.Apply(g)
			for n, want := range c.adopted {
				if got := applied.Vertex(graph.VertexID{ID: graph.ID{n}}).MaxParallelism; got != want {
					t.Errorf("vertex %d has max parallelism %d, want %d", n, got, want)
				}
			}
			for i := range g.Vertices {
				if len(c.adopted) > 0 && c.adopted[g.Vertices[i].ID.ID[0]] > 0 && g.Vertices[i].MaxParallelism > 0 {
					t.Error("the graph itself was changed")
				}
			}
			if _, err := Assign(c.cp, applied); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A job whose max parallelism nobody set may be restored at any parallelism that its state allows, also where the number that would be
// derived today is another one (from 86 on); above it the refusal names both numbers. FLINK's rule for unset max parallelism.
func TestDerivedMaxParallelismFollowsTheState(t *testing.T) {
	derived := func(n byte, name string, p int, ops ...graph.Operator) graph.Vertex {
		v := vertex(n, name, p, state.DefaultMaxParallelism(p), ops...)
		v.MaxDerived = true
		return v
	}
	parallelism := rapid.OneOf(rapid.SampledFrom([]int{1, 84, 85, 86, 127, 128, 129, 170, 171, 256, 257}), rapid.IntRange(1, 400))
	rapid.Check(t, func(t *rapid.T) {
		p1, p2 := parallelism.Draw(t, "before"), parallelism.Draw(t, "after")
		limit := state.DefaultMaxParallelism(p1)
		if rapid.Bool().Draw(t, "was adopted before") {
			limit = max(p1, rapid.IntRange(1, 512).Draw(t, "limit"))
		}
		cp := metadata.Checkpoint{Operators: []metadata.Operator{keyedState(2, "totals", p1, limit), listState(1, "orders", "a", "b")}}
		g := graph.JobGraph{Vertices: []graph.Vertex{derived(1, "s", p2, source), derived(2, "w", p2, window)}}
		adopted, err := Check(cp, g, false)
		if p2 > limit {
			var m *MisfitError
			if !errors.As(err, &m) || len(m.Misfits) != 1 || !strings.Contains(err.Error(), fmt.Sprintf("parallelism %d, above the max parallelism of its state, %d", p2, limit)) {
				t.Fatalf("parallelism %d above %d: %v", p2, limit, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		g = adopted.Apply(g)
		if w, s := g.Vertices[1].MaxParallelism, g.Vertices[0].MaxParallelism; w != limit || s != state.DefaultMaxParallelism(p2) {
			t.Fatalf("the window has %d, want %d as stored; the source %d", w, limit, s)
		}
		if _, err := Assign(cp, g); err != nil {
			t.Fatal(err)
		}
		// What the restored job stores fits again, at the first parallelism.
		again := graph.JobGraph{Vertices: []graph.Vertex{derived(2, "w", p1, window)}}
		cp = metadata.Checkpoint{Operators: []metadata.Operator{keyedState(2, "totals", p2, g.Vertices[1].MaxParallelism)}}
		if adopted, err = Check(cp, again, false); err != nil || adopted.Apply(again).Vertices[0].MaxParallelism != limit {
			t.Fatalf("back at %d: %v, %v", p1, adopted, err)
		}
	})
}

// Whatever Check accepts, Assign restores: every key group and every item, once, to a task of its operator.
func TestAssignGivesEverythingOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxP := rapid.IntRange(1, 200).Draw(t, "max")
		oldP, newP := rapid.IntRange(1, min(9, maxP)).Draw(t, "old"), rapid.IntRange(1, min(9, maxP)).Draw(t, "new")
		cp := metadata.Checkpoint{Operators: []metadata.Operator{keyedState(2, "totals", oldP, maxP), listState(1, "orders", "a", "b", "c", "d", "e")}}
		g := graph.JobGraph{Vertices: []graph.Vertex{vertex(1, "chain", newP, rapid.SampledFrom([]int{0, maxP}).Draw(t, "set"), source, window)}}
		adopted, err := Check(cp, g, false)
		if err != nil {
			t.Fatal(err)
		}
		g = adopted.Apply(g)
		a, err := Assign(cp, g)
		if err != nil {
			t.Fatal(err)
		}
		tasks := a[g.Vertices[0].ID]
		if len(tasks) != newP {
			t.Fatalf("%d tasks, want %d", len(tasks), newP)
		}
		var items []string
		for i, task := range tasks {
			r := state.RangeOf(maxP, newP, i)
			covered := 0
			for _, o := range task.Operators {
				for _, h := range o.State.Keyed {
					if o.ID != op(2) {
						t.Fatalf("keyed state given to %s", o.ID)
					}
					covered += max(0, min(h.Range.End, r.End)-max(h.Range.Start, r.Start))
				}
				for _, l := range o.State.Lists {
					for _, it := range l.Items {
						items = append(items, string(it))
					}
				}
			}
			if covered != r.End-r.Start {
				t.Fatalf("subtask %d gets %d of its %d key groups", i, covered, r.End-r.Start)
			}
		}
		slices.Sort(items)
		if strings.Join(items, "") != "abcde" {
			t.Fatalf("items %v", items)
		}
	})
}

// A stopped job's savepoint is moved to another folder and to another cluster, and restores (FLINK-5763); a retained checkpoint with
// shared files is moved with its job's folder.
func TestRelocation(t *testing.T) {
	ctx := t.Context()
	reg := &fs.Registry{}
	mem.Register(reg)
	job := graph.JobID{ID: graph.ID{7}}
	f, _, err := reg.Resolve(ctx, "mem://nn1/")
	if err != nil {
		t.Fatal(err)
	}
	st := storage.New(f, "/ckp", job)

	put := func(sink state.Sink, scope state.Scope, content string) state.FileRef {
		t.Helper()
		s, err := sink.Create(ctx, scope)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(s, content); err != nil {
			t.Fatal(err)
		}
		ref, err := s.Commit()
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	store := func(dir, shared string) {
		t.Helper()
		sink := storage.NewSink(reg, dir, shared, 8)
		o := keyedState(2, "totals", 1, 128)
		o.Subtasks[0].Keyed[0].Files = []state.File{{Ref: put(sink, state.Exclusive, "tiny")}, {Ref: put(sink, state.Exclusive, "a larger file")},
			{Ref: put(sink, state.Shared, "a shared file")}}
		if _, _, err := st.WriteMetadata(ctx, dir, metadata.Checkpoint{ID: 3, JobID: job, Operators: []metadata.Operator{o}}); err != nil {
			t.Fatal(err)
		}
	}
	restore := func(uri string, mode ClaimMode) (scopes []state.Scope) {
		t.Helper()
		cp, err := Load(ctx, reg, uri, mode)
		if err != nil {
			t.Fatal(err)
		}
		g := graph.JobGraph{Vertices: []graph.Vertex{vertex(2, "w", 2, 0, window)}}
		adopted, err := Check(cp, g, false)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Assign(cp, adopted.Apply(g))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range a[g.Vertices[0].ID] {
			// As it travels to the worker.
			b, err := metadata.EncodeTask(task)
			if err != nil {
				t.Fatal(err)
			}
			if task, err = metadata.DecodeTask(b); err != nil {
				t.Fatal(err)
			}
			var content []string
			task.Refs(func(r *state.FileRef) {
				scopes = append(scopes, r.Scope)
				rd, err := storage.NewSource(reg).Open(ctx, *r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(rd)
				if err != nil {
					t.Fatal(err)
				}
				content = append(content, string(b))
				if err := rd.Close(); err != nil {
					t.Fatal(err)
				}
			})
			if strings.Join(content, ",") != "tiny,a larger file,a shared file" {
				t.Fatalf("%s: %v", uri, content)
			}
		}
		return scopes
	}
	copyTree := func(from, to string) {
		t.Helper()
		src, p, err := reg.Resolve(ctx, from)
		if err != nil {
			t.Fatal(err)
		}
		dst, q, err := reg.Resolve(ctx, to)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range src.(*mem.FileSystem).Dump() {
			if rel, ok := strings.CutPrefix(name, p+"/"); ok {
				if err := fs.WriteFile(ctx, dst, path.Join(q, rel), []byte(content), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := src.Remove(context.Background(), p, true); err != nil {
			t.Fatal(err)
		}
	}

	sp := storage.NewSavepointDir("mem://nn1/sp", job)
	store(sp, sp)
	restore(sp, NoClaim)
	copyTree(sp, "mem://nn1/elsewhere/renamed")
	restore("mem://nn1/elsewhere/renamed", NoClaim)
	copyTree("mem://nn1/elsewhere/renamed", "mem://nn2/sp")
	restore("mem://nn2/sp/_metadata", NoClaim)

	store(st.CheckpointDir(3), st.SharedDir())
	if s := restore(st.CheckpointDir(3), Claim); !slices.Contains(s, state.Shared) {
		t.Fatal("a claimed checkpoint lost its shared files")
	}
	copyTree(st.Dir(), "mem://nn3/archive/job")
	if s := restore("mem://nn3/archive/job/chk-3", NoClaim); slices.Contains(s, state.Shared) {
		t.Fatal("without claim a backend may carry the user's file over into its checkpoints")
	}
}

func TestDisposeRemovesTheSavepointAndNothingElse(t *testing.T) {
	ctx := t.Context()
	reg := &fs.Registry{}
	local.Register(reg)
	f := local.New()
	defer func() { _ = f.Close() }()
	make := func(savepoint bool) string {
		dir := t.TempDir() + "/savepoint-1"
		sink := storage.NewSink(reg, "file://"+dir, "", 0)
		s, err := sink.Create(ctx, state.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		ref, err := s.Commit()
		if err != nil {
			t.Fatal(err)
		}
		o := keyedState(1, "u", 1, 8)
		o.Subtasks[0].Keyed[0].Files = []state.File{{Ref: ref}}
		if _, _, err := storage.WriteMetadata(ctx, f, "file://"+dir, metadata.Checkpoint{ID: 1, Savepoint: savepoint, Operators: []metadata.Operator{o}}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	whole := make(true)
	if err := Dispose(ctx, reg, "file://"+whole+"/_metadata"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(whole); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
	if err := Dispose(ctx, reg, "file://"+whole); !errors.Is(err, storage.ErrNoCheckpoint) {
		t.Errorf("once more: %v", err)
	}
	mixed := make(true)
	if err := os.WriteFile(mixed+"/notes", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var left *LeftError
	if err := Dispose(ctx, reg, "file://"+mixed); !errors.As(err, &left) || left.Files != 1 {
		t.Errorf("a file of somebody else: %v", err)
	}
	claimed := make(true)
	if _, err := storage.New(f, t.TempDir(), graph.JobID{ID: graph.ID{1}}, storage.WithRegistry(reg)).Own(ctx, storage.Owner{Job: graph.JobID{ID: graph.ID{1}}, Claims: []string{"file://" + claimed}}); err != nil {
		t.Fatal(err)
	}
	var owned *storage.OwnedError
	if err := Dispose(ctx, reg, "file://"+claimed); !errors.As(err, &owned) {
		t.Errorf("one that a job has claimed: %v", err)
	}
	if _, err := storage.ReadMetadata(ctx, reg, "file://"+claimed); err != nil {
		t.Errorf("the claimed savepoint is damaged: %v", err)
	}
	checkpoint := make(false)
	if err := Dispose(ctx, reg, "file://"+checkpoint); !errors.Is(err, ErrNotSavepoint) {
		t.Errorf("a checkpoint: %v", err)
	}
	if _, err := storage.ReadMetadata(ctx, reg, "file://"+checkpoint); err != nil {
		t.Errorf("the checkpoint is damaged: %v", err)
	}
}

// State of another layout is refused, with all other misfits, whatever may be left behind; state or graphs without a layout are of versions
// that knew none.
func TestLayouts(t *testing.T) {
	state := func(n byte, uid, layout string) metadata.Operator {
		o := keyedState(n, uid, 2, 128)
		if layout != "" {
			o.Subtasks[1].Lists = []metadata.ListState{{Name: metadata.LayoutState, Items: [][]byte{[]byte(layout)}}}
		}
		return o
	}
	keeps := func(n byte, uid, layout string) graph.Vertex {
		return vertex(n, uid, 2, 128, graph.Operator{ID: op(n), UID: uid, Name: "Window", Keyed: true, Stateful: true, CallSite: "job.go:12", Layout: layout})
	}
	cp := metadata.Checkpoint{Operators: []metadata.Operator{
		state(1, "size", "tumbling event-time windows of 1h0m0s"), state(2, "kind", "interval join"), state(3, "same", "sessions"), state(4, "older", ""), state(5, "newer", "sessions"),
	}}
	g := graph.JobGraph{Vertices: []graph.Vertex{
		keeps(1, "size", "tumbling event-time windows of 1m0s"), keeps(2, "kind", "keyed process function"), keeps(3, "same", "sessions"), keeps(4, "older", "sessions"), keeps(5, "newer", ""),
	}}
	for _, allow := range []bool{false, true} {
		_, err := Check(cp, g, allow)
		if got := misfits(t, err); len(got) != 2 {
			t.Fatalf("%q", got)
		}
		contains(t, err.Error(), `(uid "size") at job.go:12 keeps, in the job, tumbling event-time windows of 1m0s, and the checkpoint holds tumbling event-time windows of 1h0m0s`,
			"--drain", `(uid "kind") at job.go:12 keeps, in the job, keyed process function, and the checkpoint holds interval join`, "another UID", "--allowNonRestoredState")
	}
}
