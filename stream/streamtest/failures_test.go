package streamtest_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

// fragile fails where its field says.
type fragile struct {
	where string
	state stream.ValueState[int64]
}

func (f *fragile) Open(rt *stream.RuntimeContext[string]) (err error) {
	switch f.where {
	case "open":
		return errors.New("no luck")
	case "panic in open":
		panic("no luck")
	case "unopened":
		return nil
	}
	f.state, err = rt.ValueState[int64]("state")
	return err
}

func (f *fragile) Close() error {
	if f.where == "panic in close" {
		panic("no luck")
	}
	return nil
}

func (f *fragile) ProcessElement(ctx *stream.KeyedContext[string], v event, out *stream.Collector[event]) error {
	if f.where == "panic" {
		var m map[string]int
		m["a"] = 1 //nolint:staticcheck // fails here
	}
	if err := f.state.Update(v.N); err != nil { // or here
		return err
	}
	out.Collect(v)
	return errors.Join(ctx.RegisterEventTimeTimer(streamtest.At(time.Minute)), ctx.RegisterProcessingTimeTimer(ctx.ProcessingTime().Add(time.Minute)))
}

func (f *fragile) OnTimer(_ *stream.KeyedContext[string], timer stream.Timer, _ *stream.Collector[event]) error {
	if f.where == "panic in timer" {
		panic("no luck")
	}
	return fmt.Errorf("event time: %v", timer.EventTime)
}

func TestFailuresAreReturned(t *testing.T) {
	const op = "operator KeyedProcess (uid fragile) at failures_test.go:"
	push := func(h *streamtest.Harness[event, event]) error { return h.TryPush(event{"a", 1}) }
	mark := func(h *streamtest.Harness[event, event]) error {
		h.Push(event{"a", 1})
		return h.TryWatermark(streamtest.At(time.Hour))
	}
	for _, c := range []struct {
		where, want string
		do          func(h *streamtest.Harness[event, event]) error
	}{
		{"open", "no luck", push},
		{"open", "no luck", func(h *streamtest.Harness[event, event]) error { return h.TryEnd() }},
		{"panic in open", "panic in " + op, push},
		{"panic in open", "no luck, at failures_test.go:", push},
		{"panic", ": assignment to entry in nil map, at failures_test.go:", push},
		{"panic", "failures_test.go", push}, // the stack
		{"unopened", "the handle of a ValueState was not opened in Open: runtime error: invalid memory address or nil pointer dereference, at failures_test.go:", push},
		{"timer", "event time: true", mark},
		{"timer", "event time: false", func(h *streamtest.Harness[event, event]) error {
			h.Push(event{"a", 1})
			return h.TryAdvance(time.Minute)
		}},
		{"panic in timer", "panic in " + op, mark},
	} {
		h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
			return in.KeyBy(keyOf).Process(func() stream.KeyedProcessFunction[string, event, event] { return &fragile{where: c.where} }).UID("fragile")
		}, streamtest.NoRestarts())
		err := c.do(h)
		if err == nil || !strings.Contains(err.Error(), op) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.where, err, c.want)
		}
		if strings.HasPrefix(c.where, "panic") && !strings.Contains(err.Error(), "streamtest_test.(*fragile)") {
			t.Errorf("%s: no stack: %v", c.where, err)
		}
		if err := h.TryAdvance(time.Minute); err == nil || !strings.Contains(err.Error(), "failed already") {
			t.Errorf("%s: a failed job goes on: %v", c.where, err)
		}
	}
}

func TestCounters(t *testing.T) {
	h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[int64] {
		return in.KeyBy(keyOf).Window(stream.TumblingEventTime(time.Second)).Count(func(string, stream.TimeWindow, int64) int64 { return 1 })
	})
	h.PushAt(streamtest.At(0), event{"a", 1}, event{"a", 1})
	h.Watermark(streamtest.At(time.Minute))
	h.PushAt(streamtest.At(0), event{"a", 1}, event{"b", 1})
	if n := h.Counter("numLateRecordsDropped"); n != 2 {
		t.Errorf("%d late records", n)
	}
	if n := h.Counter("numRecordsSend"); n != 1 {
		t.Errorf("%d records written", n)
	}
	h.Restart(2)
	if n := h.Counter("numLateRecordsDropped"); n != 2 {
		t.Errorf("%d late records after a restart", n)
	}
	if got := said(t, func(t testing.TB) {
		h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
			return in.Filter(func(event) bool { return true })
		})
		h.Counter("typo")
	}); got != `streamtest: the job has no counter "typo"; it has: numRecordsSend` {
		t.Errorf("said %q", got)
	}
}

// placed notes where a test failed, as testing does: at the first caller that did not call Helper.
type placed struct {
	testing.TB
	helpers map[string]bool
	at      string
}

func (p *placed) Helper() {
	var pcs [1]uintptr
	runtime.Callers(2, pcs[:])
	f, _ := runtime.CallersFrames(pcs[:]).Next()
	p.helpers[f.Function] = true
}

func (p *placed) Fatalf(string, ...any) {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !p.helpers[f.Function] || !more {
			p.at = filepath.Base(f.File)
			panic(p)
		}
	}
}

func TestFailuresAreAtTheTestsLine(t *testing.T) {
	keyed := func(t testing.TB, where string) *streamtest.KeyedHarness[string, event, event] {
		return streamtest.KeyedProcess(t, keyOf, func() stream.KeyedProcessFunction[string, event, event] { return &fragile{where: where} })
	}
	for what, fn := range map[string]func(t testing.TB){
		"open":           func(t testing.TB) { keyed(t, "open").Push(event{"a", 1}) },
		"open, with end": func(t testing.TB) { keyed(t, "open").End() },
		"input":          func(t testing.TB) { keyed(t, "panic").In.PushAt(streamtest.At(0), event{"a", 1}) },
		"watermark": func(t testing.TB) {
			h := keyed(t, "timer")
			h.Push(event{"a", 1})
			h.Watermark(streamtest.At(time.Hour))
		},
		"advance": func(t testing.TB) {
			h := keyed(t, "timer")
			h.Push(event{"a", 1})
			h.Advance(time.Hour)
		},
		"state": func(t testing.TB) {
			h := keyed(t, "")
			h.Push(event{"a", 1})
			h.Key("a").Value[string]("state")
		},
		"no state": func(t testing.TB) {
			h := keyed(t, "")
			h.Push(event{"a", 1})
			h.Key("a").Map[string, string]("typo")
		},
		"counter": func(t testing.TB) { keyed(t, "").Counter("typo") },
	} {
		p := &placed{TB: t, helpers: map[string]bool{}}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(p) {
					panic(r)
				}
			}()
			fn(p)
		}()
		if p.at != "failures_test.go" {
			t.Errorf("%s: the test fails at %q", what, p.at)
		}
	}
	if got := said(t, func(t testing.TB) {
		h := keyed(t, "")
		h.Push(event{"a", 1})
		h.Key("a").Value[string]("state")
	}); !strings.Contains(got, "as ValueState[int64] at failures_test.go:") || !strings.Contains(got, "as ValueState[string] at failures_test.go:") {
		t.Errorf("said %q", got)
	}
}

// told is a test that keeps what it fails with.
type told struct {
	testing.TB
	text string
}

func (f *told) Helper()        {}
func (f *told) Cleanup(func()) {}
func (f *told) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// A mistake in what a harness is given is told with the line of the test, not with one of the harness.
func TestAMistakeNamesTheTestsLine(t *testing.T) {
	one, f, done := &counting{}, &told{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		streamtest.KeyedProcess(f, keyOf, func() stream.KeyedProcessFunction[string, event, event] { return one })
	}()
	<-done
	if !strings.Contains(f.text, "failures_test.go:") || !strings.Contains(f.text, "the same instance each time") {
		t.Errorf("told: %s", f.text)
	}
}
