package operator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

type joinedRow struct {
	key  int64
	side int // 0 left, 1 right
	id   int64
	ts   int64
}

// joinTest is a join of two streams of numbers (id) keyed by id modulo 3, with one subtask.
type joinTest struct {
	op          Operator
	left, right Receiver[int64]
	out         *sink[string]
	leftLate    *sink[int64]
}

func openJoin(t rapid.TB, reg *fs.Registry, backend, dir string, j IntervalJoin[int64, int64], st metadata.Subtask) *joinTest {
	codec, err := serde.For[int64]()
	if err != nil {
		t.Fatal(err)
	}
	sel := KeySelector[int64, int64]{Fn: func(v int64) int64 { return v % 3 }, Codec: codec}
	jt := &joinTest{out: &sink[string]{}, leftLate: &sink[int64]{}}
	ctx := &Context{Services: &services{}, Name: "join", Parallelism: 1, MaxParallelism: 8, Config: config.Configuration{"state.backend.type": backend}, Logger: zerolog.Nop(),
		Metrics: noMetrics{}, Mark: &Marker{}, StateDir: dir, StateMemory: 16 << 20, StateSource: storage.NewSource(reg), Checkpointing: true, State: st,
		Side: map[string]any{"late": Receiver[int64](jt.leftLate)}}
	op, err := JoinInterval(sel, sel, j, func(_ *JoinContext, l, r int64, out *Collector[string]) error {
		out.Collect(fmt.Sprint(l, "-", r))
		return nil
	}).New(ctx, Receiver[string](jt.out))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	jt.op, jt.left, jt.right = op, op.Input(0).(Receiver[int64]), op.Input(1).(Receiver[int64])
	return jt
}

// TestIntervalJoinAgainstModel: whatever the order of the records and the watermarks, each pair of records that are not late and whose
// times fit comes out once, with the later time; late records go to the side output or are dropped; nothing is kept when no partner can
// come any more. A checkpoint and restore in between change nothing.
func TestIntervalJoinAgainstModel(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			dir := t.TempDir()
			run := 0
			rapid.Check(t, func(rt *rapid.T) {
				run++
				reg := &fs.Registry{}
				mem.Register(reg)
				lower := rapid.Int64Range(-10, 10).Draw(rt, "lower")
				j := IntervalJoin[int64, int64]{Lower: lower, Upper: lower + rapid.Int64Range(0, 10).Draw(rt, "width"), LeftLate: "late"}
				restarts := 0
				open := func(st metadata.Subtask) *joinTest {
					restarts++
					return openJoin(rt, reg, backend, fmt.Sprintf("%s/%d-%d", dir, run, restarts), j, st)
				}
				jt := open(metadata.Subtask{})
				var rows []joinedRow
				var want, got []element[string]
				var wantLate, late []int64
				mark := MinWatermark
				take := func() {
					for _, e := range jt.out.got {
						if !e.mark {
							got = append(got, e)
						}
					}
					late = append(late, jt.leftLate.take()...)
					jt.out.got = nil
				}
				hash := state.NewHasher(func() serde.Codec[int64] { c, _ := serde.For[int64](); return c }())
				for id := range rapid.Int64Range(1, 40).Draw(rt, "steps") {
					switch rapid.IntRange(0, 9).Draw(rt, "step") {
					case 0:
						if mark < 0 {
							mark = 0
						}
						mark += rapid.Int64Range(0, 15).Draw(rt, "watermark")
						for _, in := range []Receiver[int64]{jt.left, jt.right} {
							if err := in.Watermark(mark); err != nil {
								rt.Fatal(err)
							}
						}
					case 1:
						take()
						s, err := jt.op.Snapshot(Barrier{ID: int64(restarts)})
						if err != nil {
							rt.Fatal(err)
						}
						st := metadata.Subtask{Lists: s.Lists}
						for _, k := range s.Keyed {
							h, err := k.Write(context.Background(), storage.NewSink(reg, "mem://test/cp/chk-1", "mem://test/cp/shared", 1<<10))
							if err != nil {
								rt.Fatal(err)
							}
							st.Keyed = append(st.Keyed, h)
						}
						if err := jt.op.Close(); err != nil {
							rt.Fatal(err)
						}
						b, err := metadata.Encode(metadata.Checkpoint{ID: 1, Operators: []metadata.Operator{{Parallelism: 1, MaxParallelism: 8, Subtasks: []metadata.Subtask{st}}}})
						if err != nil {
							rt.Fatal(err)
						}
						c, err := metadata.Decode(b, "mem://test/cp/chk-1")
						if err != nil {
							rt.Fatal(err)
						}
						jt = open(c.Operators[0].Subtasks[0])
						for _, in := range []Receiver[int64]{jt.left, jt.right} { // sources repeat their watermark
							if err := in.Watermark(mark); mark != MinWatermark && err != nil {
								rt.Fatal(err)
							}
						}
					default:
						r := joinedRow{id % 3, rapid.IntRange(0, 1).Draw(rt, "side"), id, rapid.Int64Range(0, 60).Draw(rt, "ts")}
						in := []Receiver[int64]{jt.left, jt.right}[r.side]
						if err := in.Process(id, Meta{TS: r.ts, Hash: hash.Hash(r.key)}); err != nil {
							rt.Fatal(err)
						}
						if r.ts < mark {
							if r.side == 0 {
								wantLate = append(wantLate, id)
							}
							continue
						}
						for _, o := range rows {
							l, rr := r, o
							if r.side == 1 {
								l, rr = o, r
							}
							if l.side != 0 || rr.side != 1 || l.key != rr.key || rr.ts < l.ts+j.Lower || rr.ts > l.ts+j.Upper {
								continue
							}
							want = append(want, element[string]{v: fmt.Sprint(l.id, "-", rr.id), ts: max(l.ts, rr.ts)})
						}
						rows = append(rows, r)
					}
				}
				for _, in := range []Receiver[int64]{jt.left, jt.right} {
					if err := in.Watermark(MaxWatermark - 1); err != nil {
						rt.Fatal(err)
					}
				}
				take()
				by := func(a, b element[string]) int { return slices.Compare([]byte(a.v), []byte(b.v)) }
				slices.SortFunc(got, by)
				slices.SortFunc(want, by)
				if !slices.Equal(got, want) {
					rt.Fatalf("pairs %v, want %v", got, want)
				}
				if !slices.Equal(late, wantLate) {
					rt.Fatalf("late %v, want %v", late, wantLate)
				}
				fn := jt.op.(*keyedCoProcessOp[int64, int64, int64, string]).fn.(*intervalJoin[int64, int64, int64, string])
				for k := range int64(3) {
					jt.op.(*keyedCoProcessOp[int64, int64, int64, string]).kc.cur = state.Key[int64]{Key: k, Hash: hash.Hash(k), Group: state.GroupOf(hash.Hash(k), 8)}
					for _, s := range []MapState[int64, []int64]{fn.left, fn.right} {
						if empty, err := s.IsEmpty(); err != nil || !empty {
							rt.Fatalf("key %d keeps records for ever (%v)", k, err)
						}
					}
				}
				if err := jt.op.Close(); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}
