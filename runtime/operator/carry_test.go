package operator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// lists is a function with operator state of every kind. It opens those whose letters are in open: l(ist), u(nion), b(roadcast), o (another one).
type lists struct {
	open string
	late bool // opens in ProcessElement
	rt   *TaskContext
	l, u ListState[string]
	o    ListState[int]
	b    BroadcastState[string, int]
	saw  *[]string
}

func (f *lists) Open(rt *TaskContext) (err error) {
	f.rt = rt
	if strings.Contains(f.open, "l") {
		if f.l, err = rt.ListState[string]("l"); err != nil {
			return err
		}
		vs, err := f.l.Get()
		if err != nil {
			return err
		}
		*f.saw = append(*f.saw, vs...)
	}
	if strings.Contains(f.open, "u") {
		if f.u, err = rt.UnionListState[string]("u"); err != nil {
			return err
		}
		vs, err := f.u.Get()
		if err != nil {
			return err
		}
		*f.saw = append(*f.saw, fmt.Sprintf("%d: %v", rt.Subtask(), slices.Sorted(slices.Values(vs))))
	}
	if strings.Contains(f.open, "b") {
		if f.b, err = rt.BroadcastState[string, int]("b"); err != nil {
			return err
		}
		n, _ := f.b.Get("x")
		*f.saw = append(*f.saw, fmt.Sprintf("%d: b %d of %d", rt.Subtask(), n, f.b.Len()))
	}
	if strings.Contains(f.open, "o") {
		if f.o, err = rt.ListState[int]("o"); err != nil {
			return err
		}
		return f.o.Update([]int{rt.Subtask()})
	}
	return nil
}

func (f *lists) ProcessElement(_ *ProcessContext, v int, _ *Collector[int]) error {
	if f.late {
		_, err := f.rt.ListState[string]("l")
		return err
	}
	f.b.Put("x", 7)
	if err := f.l.Add(fmt.Sprint("l", v)); err != nil {
		return err
	}
	return f.u.Add(fmt.Sprint("u", v))
}

func (f *lists) Close() error { return nil }

// Operator state that versions in between do not open is there for one that does, at whatever parallelism they ran.
func TestUnopenedListsAreCarried(t *testing.T) {
	for _, between := range []string{"", "o", "l", "ub"} {
		var saw []string
		version := func(open string) Factory {
			return Process(func() ProcessFunction[int, int] { return &lists{open: open, saw: &saw} })
		}
		hasher := state.NewHasher(serde.Must[int]())
		h := newHarness[int, int](t, version("lub"), "hashmap", 3, hasher.Hash)
		wantL, wantU := []string{}, []string{}
		for v := range 20 {
			h.process(v, 0)
			wantL, wantU = append(wantL, fmt.Sprint("l", v)), append(wantU, fmt.Sprint("u", v))
		}
		for i := range h.tasks {
			h.tasks[i].op.(*plainProcessOp[int, int]).fn.(*lists).b.Put("x", 7) // as a broadcast record would
		}
		var log bytes.Buffer
		h.log = zerolog.New(&log)
		h.f = version(between)
		for _, p := range []int{2, 4, 1, 3} {
			h.restart(p, true)
		}
		for name, c := range map[string]string{"l": `"l (`, "u": `"u (`, "b": `"b (`} {
			if got, want := strings.Contains(log.String(), c), !strings.Contains(between, name); got != want {
				t.Errorf("with %q open, the log names %s: %v\n%s", between, name, got, log.String())
			}
		}
		saw = nil
		h.f = version("lub")
		if strings.Contains(between, "u") { // an open union list grows with each restore that does not clear it
			wantU = nil
		}
		h.restart(2, true)
		var l, rest []string
		for _, s := range saw {
			if strings.HasPrefix(s, "l") {
				l = append(l, s)
			} else if wantU != nil || strings.Contains(s, ": b ") {
				rest = append(rest, s)
			}
		}
		slices.Sort(l)
		slices.Sort(wantL)
		slices.Sort(wantU)
		want := []string{"0: b 7 of 1", "1: b 7 of 1"}
		if wantU != nil {
			want = []string{fmt.Sprintf("0: %v", wantU), "0: b 7 of 1", fmt.Sprintf("1: %v", wantU), "1: b 7 of 1"}
		}
		if !slices.Equal(l, wantL) || !slices.Equal(rest, want) {
			t.Errorf("with %q open in between: %v\n%v\nwant %v\n%v", between, l, rest, wantL, want)
		}
		h.close()
	}
}

// Keyed state, and timers, of an operator that became another one, and of a function that opens less.
func TestUnopenedKeyedStateIsCarried(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, canonical := range []bool{true, false} {
			sel := KeySelector[int, int]{Fn: func(v int) int { return v % 5 }, Codec: serde.Must[int]()}
			version := func(open string) Factory {
				return KeyedProcess(sel, func() KeyedProcessFunction[int, int, string] { return &adders{open: open} })
			}
			h := newHarness[int, string](t, version("ab"), backend, 2, sel.NewHash())
			for v := range 20 {
				h.process(v, 0)
			}
			h.take()
			h.f = version("a")
			for _, p := range []int{3, 1, 4} {
				h.restart(p, canonical)
			}
			h.process(2, 0)
			if got := h.take(); fmt.Sprint(got) != "[a=40]" {
				t.Errorf("%s: %v", backend, got)
			}
			h.f = version("ab")
			h.restart(2, canonical)
			h.process(2, 0)
			if got := h.take(); fmt.Sprint(got) != "[a=42 b=40]" {
				t.Errorf("%s, canonical %v: %v", backend, canonical, got)
			}
			h.close()
		}
	}
}

// adders add up records in the states that open names.
type adders struct {
	open string
	rt   *RuntimeContext[int]
	s    map[string]ValueState[int]
}

func (f *adders) Open(rt *RuntimeContext[int]) (err error) {
	f.rt, f.s = rt, map[string]ValueState[int]{}
	for _, n := range strings.Split(f.open, "") {
		if f.s[n], err = rt.ValueState[int](n); err != nil {
			return err
		}
	}
	return nil
}

func (f *adders) ProcessElement(_ *KeyedContext[int], v int, out *Collector[string]) error {
	if f.open == "" {
		_, err := f.rt.ValueState[int]("late")
		return err
	}
	for _, n := range strings.Split(f.open, "") {
		was, _, err := f.s[n].Value()
		if err != nil {
			return err
		}
		out.Collect(fmt.Sprintf("%s=%d", n, was+v))
		if err := f.s[n].Update(was + v); err != nil {
			return err
		}
		if s, err := f.rt.ValueState[int](n); err != nil || s.s == nil { // what is open may be asked for again
			return fmt.Errorf("again: %w", err)
		}
	}
	return nil
}

func (f *adders) OnTimer(*KeyedContext[int], Timer, *Collector[string]) error { return nil }
func (f *adders) Close() error                                                { return nil }

// A state that is opened after Open is an error where it is opened, and no restart helps.
func TestOpeningLate(t *testing.T) {
	sel := KeySelector[int, int]{Fn: func(v int) int { return v }, Codec: serde.Must[int]()}
	keyed := newHarness[int, string](t, KeyedProcess(sel, func() KeyedProcessFunction[int, int, string] { return &adders{} }), "hashmap", 1, sel.NewHash())
	defer keyed.close()
	plain := newHarness[int, int](t, Process(func() ProcessFunction[int, int] { return &lists{late: true} }), "hashmap", 1, sel.NewHash())
	defer plain.close()
	for name, err := range map[string]error{
		"keyed state":    keyed.tasks[0].in.Process(1, Meta{Hash: sel.NewHash()(1)}),
		"operator state": plain.tasks[0].in.Process(1, Meta{}),
	} {
		var fatal interface{ Fatal() bool }
		if err == nil || !strings.Contains(err.Error(), "carry_test.go:") || !strings.Contains(err.Error(), "open it in Open") || !errors.As(err, &fatal) || !fatal.Fatal() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
