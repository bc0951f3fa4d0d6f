package stream

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// hoarder keeps what it emits through and emits in Close.
type hoarder struct {
	Plain
	out *Collector[int]
}

func (h *hoarder) ProcessElement(_ *ProcessContext, _ int, out *Collector[int]) error {
	h.out = out
	return nil
}

func (h *hoarder) Close() error {
	h.out.Collect(9)
	return nil
}

// strayOutput is where records go that a goroutine emits by a context.
var strayOutput = NewOutputTag[int]("stray")

// late emits from a goroutine when it is released.
type late struct {
	Plain
	released, done chan struct{}
}

func (l *late) ProcessElement(ctx *ProcessContext, v int, _ *Collector[int]) error {
	if v == 1 {
		go func() {
			defer close(l.done)
			<-l.released
			ctx.Output(strayOutput, 9)
		}()
	}
	return nil
}

// What is emitted outside of the call that the collector or the context was given to fails the job for good, with its line, instead of being mixed into
// whatever is at work, or lost.
func TestEmittingOutsideOfTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		build func(env *Environment, released, done chan struct{})
		call  string
	}{
		"in Close": {func(env *Environment, _, _ chan struct{}) {
			env.FromCollection(1, 2).Process(func() ProcessFunction[int, int] { return &hoarder{} }).Print()
		}, "Collect"},
		"in a goroutine": {func(env *Environment, released, done chan struct{}) {
			awaiting(env, released, done).FlatMap(func(v int, out *Collector[int]) error {
				if v == 1 {
					go func() {
						defer close(done)
						<-released
						out.Collect(9)
					}()
				}
				return nil
			}).Print()
		}, "Collect"},
		"in a goroutine, with a time": {func(env *Environment, released, done chan struct{}) {
			awaiting(env, released, done).FlatMap(func(v int, out *Collector[int]) error {
				if v == 1 {
					go func() {
						defer close(done)
						<-released
						out.CollectAt(9, 1)
					}()
				}
				return nil
			}).Print()
		}, "CollectAt"},
		"to a side output": {func(env *Environment, released, done chan struct{}) {
			s := awaiting(env, released, done).Process(func() ProcessFunction[int, int] { return &late{released: released, done: done} })
			s.GetSideOutput(strayOutput).Print()
		}, "Output"},
	} {
		released, done := make(chan struct{}), make(chan struct{})
		err := runJob(t, nil, func(env *Environment) error { c.build(env, released, done); return nil })
		for _, want := range []string{" at stray_test.go:", ": " + c.call + " at stray_test.go:", "outside of the call", "No restart: the failure is not one"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// awaiting is a stream of 1 and 2: before 2 is handed on, what 1 began is released and done.
func awaiting(env *Environment, released, done chan struct{}) DataStream[int] {
	return env.FromCollection(1, 2).SetParallelism(1).Map(func(v int) int {
		if v == 2 {
			close(released)
			<-done
		}
		return v
	}).DataStream
}

// What is emitted when the job is over cannot fail it: the log tells of it, once.
func TestEmittingAfterTheEnd(t *testing.T) {
	var kept *Collector[int]
	var log bytes.Buffer
	if err := RunLocal(t.Context(), t.Name(), func(env *Environment) error {
		env.FromCollection(1).FlatMap(func(_ int, out *Collector[int]) error {
			kept = out
			return nil
		}).SinkTo(&collect[int]{})
		return nil
	}, LocalOptions{Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.ErrorLevel)}); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Fatal(log.String())
	}
	kept.Collect(1)
	kept.Collect(2)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "a record was emitted after the end of its operator") || !strings.Contains(got, "Collect at stray_test.go:") {
		t.Errorf("the log: %s", got)
	}
}
