package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/serde"
)

// dated is a record that loses something on its way through an exchange: the zone.
type dated struct {
	At time.Time
	N  int64
}

// hidden keeps in its encoding what it likes.
type hidden struct{ text, note string }

func (h hidden) MarshalBinary() ([]byte, error)     { return []byte(h.text), nil }
func (h *hidden) UnmarshalBinary(data []byte) error { h.text = string(data); return nil }

// sent is v as it arrives behind an exchange.
func sent[T any](t testing.TB, v T) T {
	t.Helper()
	c := serde.Must[T]()
	w, _, err := c.Decode(c.Append(nil, v))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type mute struct{}

func (mute) Open(*RuntimeContext[string]) error                                   { return nil }
func (mute) Close() error                                                         { return nil }
func (mute) OnTimer(*KeyedContext[string], Timer, *Collector[dated]) error        { return nil }
func (mute) ProcessElement(*KeyedContext[string], dated, *Collector[dated]) error { return nil }
func (mute) ProcessFirst(*KeyedContext[string], dated, *Collector[dated]) error   { return nil }
func (mute) ProcessSecond(*KeyedContext[string], dated, *Collector[dated]) error  { return nil }

type muteBroadcast struct{}

func (muteBroadcast) Open(*RuntimeContext[string]) error { return nil }
func (muteBroadcast) Close() error                       { return nil }
func (muteBroadcast) OnTimer(*KeyedReadOnlyContext[string], Timer, *Collector[dated]) error {
	return nil
}
func (muteBroadcast) ProcessElement(*KeyedReadOnlyContext[string], dated, *Collector[dated]) error {
	return nil
}
func (muteBroadcast) ProcessBroadcastElement(*KeyedBroadcastContext[string], dated, *Collector[dated]) error {
	return nil
}

// A key function that does not return behind the exchange what it returned before it fails the task at the first such record, whatever
// keyed operator follows, and says where and why.
func TestKeysMustSurviveTheExchange(t *testing.T) {
	zone := time.FixedZone("", 9*3600)
	day := func(v dated) string { return v.At.Format(time.DateOnly) }
	utc := func(v dated) string { return v.At.UTC().Format(time.DateOnly) }
	sum := WindowFunctions[string, dated, int64, dated]{
		Add: func(a *int64, v dated, _ bool) { *a += v.N }, Merge: func(a, b int64) int64 { return a + b },
		Emit: func(string, Window, *int64, *Collector[dated]) error { return nil },
	}
	windows := func() WindowFunctions[string, dated, int64, dated] { return sum }
	at := func(a WindowAssigner[dated], sel KeySelector[string, dated]) WindowSpec[string, dated] {
		return WindowSpec[string, dated]{Key: sel, Assigner: a}
	}
	type build func(sel KeySelector[string, dated]) Factory
	for name, f := range map[string]build{
		"reduce": func(sel KeySelector[string, dated]) Factory { return Reduce(sel, func(a, _ dated) dated { return a }) },
		"rolling": func(sel KeySelector[string, dated]) Factory {
			return Rolling(sel, func() RollingFunctions[string, dated, int64, dated] {
				return RollingFunctions[string, dated, int64, dated]{Add: sum.Add, Result: func(string, *int64) dated { return dated{} }}
			})
		},
		"tumbling": func(sel KeySelector[string, dated]) Factory { return TumblingWindow(sel, Tumbling{Size: 10}, sum) },
		"global": func(sel KeySelector[string, dated]) Factory {
			return AggregateWindow(at(WindowAssigner[dated]{Kind: GlobalWindows}, sel), windows)
		},
		"session": func(sel KeySelector[string, dated]) Factory {
			return AggregateWindow(at(WindowAssigner[dated]{Kind: SessionWindows, EventTime: true, Session: Session[dated]{Gap: 5}}, sel), windows)
		},
		"join": func(sel KeySelector[string, dated]) Factory {
			spec := CoWindowSpec[string, dated, dated]{One: sel, Two: sel, Windows: WindowSpec[string, TaggedUnion[dated, dated]]{
				Assigner: WindowAssigner[TaggedUnion[dated, dated]]{Kind: SlidingWindows, EventTime: true, Sliding: Sliding{Size: 10, Slide: 10}}}}
			return JoinWindow(spec, func(*WindowContext[string], dated, dated, *Collector[dated]) error { return nil })
		},
		"process": func(sel KeySelector[string, dated]) Factory {
			return KeyedProcess(sel, func() KeyedProcessFunction[string, dated, dated] { return mute{} })
		},
		"connect": func(sel KeySelector[string, dated]) Factory {
			return KeyedCoProcess(sel, sel, func() KeyedCoProcessFunction[string, dated, dated, dated] { return mute{} })
		},
		"broadcast": func(sel KeySelector[string, dated]) Factory {
			return KeyedBroadcastProcess(sel, nil, func() KeyedBroadcastProcessFunction[string, dated, dated, dated] { return muteBroadcast{} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(key func(dated) string) error {
				sel := KeySelector[string, dated]{Fn: key, Codec: serde.Must[string](), Site: "job.go:12"}
				h := newHarness[dated, dated](t, f(sel), "hashmap", 1, nil)
				defer h.close()
				hash := sel.NewHash()
				for i := range 1000 {
					v := dated{time.Date(2026, 1, 1, 12, 0, 0, 0, zone), int64(i)}
					if i == 999 {
						v.At = v.At.Add(-8 * time.Hour) // in the zone it is the same day
					}
					if err := h.tasks[0].in.Process(sent(t, v), Meta{TS: 1, Hash: hash(v)}); err != nil {
						return fmt.Errorf("record %d: %w", i, err)
					}
				}
				return nil
			}
			if err := run(utc); err != nil {
				t.Fatal(err)
			}
			err := run(day)
			var key *KeyError
			var user *UserError
			if !errors.As(err, &key) || !errors.As(err, &user) {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{"record 999", "op, subtask 1/1", "job.go:12", `"2025-12-31"`, "without its zone"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

// So does one that depends on something else than the record, or on what the record's own encoding does not keep.
func TestKeysMustFollowFromTheRecord(t *testing.T) {
	n := 0
	for name, err := range map[string]error{
		"counter": firstWrongKey(t, reading{"s", 1}, func(reading) int64 { n++; return int64(n) }),
		"marshal": firstWrongKey(t, hidden{"a", "b"}, func(v hidden) string { return v.text + v.note }),
	} {
		var key *KeyError
		if !errors.As(err, &key) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A key that is wrong once in a while makes no entry in the state, on each backend.
func TestWrongKeysGetNoState(t *testing.T) {
	for _, backend := range backends {
		wrong := false
		sel := KeySelector[int64, reading]{Codec: serde.Must[int64](), Site: "job.go:12", Fn: func(v reading) int64 {
			if wrong {
				return -1
			}
			return v.Value
		}}
		for name, f := range map[string]Factory{
			"reduce": Reduce(sel, func(a, _ reading) reading { return a }),
			"windows": AggregateWindow(WindowSpec[int64, reading]{Key: sel, Assigner: tumbling(10, 0)}, func() WindowFunctions[int64, reading, int64, reading] {
				return WindowFunctions[int64, reading, int64, reading]{Add: func(a *int64, v reading, _ bool) { *a += v.Value },
					Emit: func(int64, Window, *int64, *Collector[reading]) error { return nil }}
			}),
			"sessions": AggregateWindow(WindowSpec[int64, reading]{Key: sel, Assigner: sessionsOf(10)}, func() WindowFunctions[int64, reading, int64, reading] {
				return WindowFunctions[int64, reading, int64, reading]{Add: func(a *int64, v reading, _ bool) { *a += v.Value },
					Merge: func(a, b int64) int64 { return a + b }, Emit: func(int64, Window, *int64, *Collector[reading]) error { return nil }}
			}),
			"state": KeyedProcess(sel, func() KeyedProcessFunction[int64, reading, reading] { return &keeps{} }),
		} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				wrong = false
				h := newHarness[reading, reading](t, f, backend, 1, sel.NewHash())
				defer h.close()
				for i := range int64(keyChecksFirst + keyCheckEvery + 2) {
					h.process(reading{"s", i}, 1)
				}
				v := reading{"s", 5}
				hash := sel.NewHash()(v)
				wrong = true
				err := h.tasks[0].in.Process(v, Meta{TS: 1, Hash: hash})
				var key *KeyError
				if !errors.As(err, &key) || key.Site != "job.go:12" || key.Key != "-1" || strings.Count(err.Error(), "operator op") != 1 {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// keeps keeps the last record of a key.
type keeps struct{ last ValueState[reading] }

func (k *keeps) Close() error { return nil }
func (k *keeps) Open(rt *RuntimeContext[int64]) (err error) {
	k.last, err = rt.ValueState[reading]("last")
	return err
}
func (k *keeps) OnTimer(*KeyedContext[int64], Timer, *Collector[reading]) error { return nil }
func (k *keeps) ProcessElement(_ *KeyedContext[int64], v reading, _ *Collector[reading]) error {
	return k.last.Update(v)
}

func firstWrongKey[K comparable, T any](t *testing.T, v T, key func(T) K) error {
	sel := KeySelector[K, T]{Fn: key, Codec: serde.Must[K]()}
	h := newHarness[T, T](t, Reduce(sel, func(a, _ T) T { return a }), "hashmap", 1, nil)
	defer h.close()
	return h.tasks[0].in.Process(sent(t, v), Meta{Hash: sel.NewHash()(v)})
}
