package operator

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"
)

// visits lists what a window has seen at each firing, in per-window state, and says what is there when the window is gone.
type visits struct {
	opts []StateOption
	list ListState[int64]
	seen MapState[string, int64]
	told func(string)
}

func (v *visits) Open(rt *WindowRuntimeContext[string]) (err error) {
	if v.list, err = rt.WindowListState[int64]("list", v.opts...); err != nil {
		return err
	}
	v.seen, err = rt.WindowMapState[string, int64]("seen", v.opts...)
	return err
}

func (v *visits) Process(ctx *WindowContext[string], rs iter.Seq[reading], out *Collector[string]) error {
	n := int64(0)
	for r := range rs {
		n += r.Value
	}
	err := errors.Join(v.list.Add(n), v.seen.Put(fmt.Sprint("sum ", n), n))
	l, lerr := v.list.Get()
	out.Collect(fmt.Sprint(ctx.Key(), ctx.w, l))
	return errors.Join(err, lerr)
}

func (v *visits) Clear(ctx *WindowContext[string]) error {
	l, err := v.list.Get()
	keys, kerr := v.seen.Keys()
	slices.Sort(keys)
	v.told(fmt.Sprint(ctx.Key(), ctx.w, l, keys))
	return errors.Join(err, kerr, v.list.Add(-1), v.seen.Put("after the end", -1))
}

func (v *visits) Close() error { return nil }

// Per-window state lives until the allowed lateness of its window is over, is there in Clear, and is gone afterwards, whatever Clear puts: for windows
// in slices and for those with a trigger, on both backends, over restarts at another parallelism.
func TestWindowStateEndsWithTheWindow(t *testing.T) {
	for _, backend := range backends {
		for name, trigger := range map[string]func() Trigger[reading]{"slices": nil, "trigger": NewEventTimeTrigger[reading]} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				var told []string
				spec := WindowSpec[string, reading]{Key: sensorKey(t), Lateness: 5, Trigger: trigger,
					Assigner: WindowAssigner[reading]{EventTime: true, Sliding: Sliding{10, 5, 0}}}
				f := ProcessWindow(spec, func() ProcessWindowFunction[string, reading, string] {
					return &visits{told: func(s string) { told = append(told, s) }}
				})
				h := newHarness[reading, string](t, f, backend, 1, sensorHash(t))
				defer h.close()
				want := func(what string, out []string, entries ...string) {
					t.Helper()
					if got := h.take(); !slices.Equal(got, out) {
						t.Errorf("%s: got %q, want %q", what, got, out)
					}
					for _, table := range []string{"list", "seen"} {
						all := h.entries(windowPrefix + table)
						if table == "seen" {
							all = slices.Compact(all)
						}
						if !slices.Equal(all, entries) {
							t.Errorf("%s: %s has entries of %q, want %q", what, table, all, entries)
						}
					}
				}
				h.process(reading{"a", 1}, 7) // of the windows that begin at 0 and at 5
				want("before the end", nil)
				h.watermark(9)
				want("the first window", []string{"a{0 10} [1]"}, "a 0")
				h.restart(3, false)
				h.watermark(9)
				h.process(reading{"a", 2}, 8)
				want("a late record", []string{"a{0 10} [1 3]"}, "a 0")
				h.restart(2, true)
				h.watermark(14)
				want("the second window", []string{"a{5 15} [3]"}, "a 5")
				if want := []string{"a{0 10} [1 3] [sum 1 sum 3]"}; !slices.Equal(told, want) {
					t.Errorf("Clear found %q, want %q", told, want)
				}
				h.watermark(MaxWatermark)
				want("the end", nil)
				if len(told) != 2 || told[1] != "a{5 15} [3] [sum 3]" {
					t.Errorf("Clear found %q", told)
				}
			})
		}
	}
}

// Per-window state takes a time to live.
func TestWindowStateExpires(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			spec := WindowSpec[string, reading]{Key: sensorKey(t), Assigner: WindowAssigner[reading]{Kind: GlobalWindows},
				Trigger: func() Trigger[reading] { return NewPurgingTrigger(NewCountTrigger[reading](1)) }}
			f := ProcessWindow(spec, func() ProcessWindowFunction[string, reading, string] {
				return &visits{opts: []StateOption{WithTTL(StateTTLConfig{TTL: time.Second})}}
			})
			h := newHarness[reading, string](t, f, backend, 1, sensorHash(t))
			defer h.close()
			for i, at := range []int64{0, 600, 1100} {
				h.advance(at)
				h.process(reading{"a", int64(i)}, 0)
			}
			var got []string
			for _, s := range h.take() {
				got = append(got, s[strings.Index(s, "["):])
			}
			if want := []string{"[0]", "[0 1]", "[1 2]"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			for at := int64(2000); at <= 10_000; at += 1000 { // a step of the clean-up at a time
				h.advance(at)
			}
			if all := append(h.entries(windowPrefix+"list"), h.entries(windowPrefix+"seen")...); len(all) > 0 {
				t.Errorf("expired and not cleaned up: %q", all)
			}
			if n := h.counted("state.window-user-list.numExpired"); n == 0 {
				t.Error("nothing is counted as expired")
			}
		})
	}
}
