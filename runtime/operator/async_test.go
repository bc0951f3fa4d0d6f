package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
)

// desk is a task's services for operators that post from other goroutines.
type desk struct {
	services
	ctx   context.Context
	mu    sync.Mutex
	mails []func() error
	wake  chan struct{}
}

func newDesk(ctx context.Context) *desk { return &desk{ctx: ctx, wake: make(chan struct{}, 1)} }

func (d *desk) Context() context.Context           { return d.ctx }
func (d *desk) SendEvent(graph.OperatorID, []byte) {}
func (d *desk) Post(fn func() error) {
	d.mu.Lock()
	d.mails = append(d.mails, fn)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run runs the mails that are there.
func (d *desk) run() error {
	d.mu.Lock()
	mails := d.mails
	d.mails = nil
	d.mu.Unlock()
	for _, fn := range mails {
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}

// until runs mails until ok, or a minute.
func (d *desk) until(ok func() bool) error {
	limit := time.After(time.Minute)
	for {
		if err := d.run(); err != nil || ok() {
			return err
		}
		select {
		case <-d.wake:
		case <-limit:
			return errors.New("nothing came of it in a minute")
		}
	}
}

// oracle answers a record when the test says so.
type oracle struct {
	mu    sync.Mutex
	calls map[int64]chan error
}

func (o *oracle) Open(*TaskContext) error { return nil }
func (o *oracle) Close() error            { return nil }

func (o *oracle) call(v int64) chan error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls[v] == nil {
		o.calls[v] = make(chan error, 10)
	}
	return o.calls[v]
}

func (o *oracle) Invoke(ctx context.Context, v int64) ([]string, error) {
	select {
	case err := <-o.call(v):
		if err != nil {
			return nil, err
		}
		return []string{fmt.Sprint(v), fmt.Sprint(-v)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type asyncTest struct {
	op   Operator
	in   Receiver[int64]
	out  *sink[string]
	desk *desk
}

func openAsync(t rapid.TB, fn AsyncFunction[int64, string], opts AsyncOptions[string], state metadata.Subtask) *asyncTest {
	a := &asyncTest{out: &sink[string]{}, desk: newDesk(context.Background())}
	ctx := &Context{Services: a.desk, Name: "ask", Parallelism: 1, MaxParallelism: 128, Config: config.Configuration{}, Logger: zerolog.Nop(),
		Metrics: noMetrics{}, Mark: &Marker{}, State: state}
	op, err := AsyncWait(func() AsyncFunction[int64, string] { return fn }, opts).New(ctx, Receiver[string](a.out))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.op, a.in = op, op.Input(0).(Receiver[int64])
	return a
}

// TestAsyncWaitAgainstModel: whatever order the answers come in, each record's results leave once, with its time, in order when that was
// asked for and never across a watermark; a restore asks again for what had not left at the checkpoint, and for nothing else.
func TestAsyncWaitAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ordered := rapid.Bool().Draw(rt, "ordered")
		capacity := rapid.IntRange(1, 6).Draw(rt, "capacity")
		opts := AsyncOptions[string]{Ordered: ordered, Timeout: time.Hour, Capacity: capacity}
		fn := &oracle{calls: map[int64]chan error{}}
		a := openAsync(rt, fn, opts, metadata.Subtask{})
		type sent struct{ v, ts int64 }
		var waiting []int64 // asked, not answered
		var groups [][]sent // between watermarks
		var got [][]element[string]
		groups, got = append(groups, nil), append(got, nil)
		mark := int64(0)
		left := 0 // results that left
		take := func() {
			for _, e := range a.out.got {
				if e.mark {
					got = append(got, nil)
					continue
				}
				got[len(got)-1] = append(got[len(got)-1], e)
				left++
			}
			a.out.got = nil
		}
		n := int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1, 2:
				if len(waiting) > 0 && int(n)-left/2 >= capacity {
					continue // the operator would wait
				}
				n++
				ts := rapid.Int64Range(0, 9).Draw(rt, "ts")
				groups[len(groups)-1] = append(groups[len(groups)-1], sent{n, ts})
				waiting = append(waiting, n)
				if err := a.in.Process(n, Meta{TS: ts}); err != nil {
					rt.Fatal(err)
				}
			case 3, 4:
				if len(waiting) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(rt, "answer")
				fn.call(waiting[i]) <- nil
				waiting = slices.Delete(waiting, i, i+1)
				o := a.op.(*asyncOp[int64, string])
				if err := a.desk.until(func() bool { // the answer was taken
					return o.pendingAnswers() == len(waiting)
				}); err != nil {
					rt.Fatal(err)
				}
			case 5:
				mark++
				groups = append(groups, nil)
				if err := a.in.Watermark(mark); err != nil {
					rt.Fatal(err)
				}
			case 6:
				take()
				s, err := a.op.Snapshot(Barrier{})
				if err != nil {
					rt.Fatal(err)
				}
				if err := a.op.Close(); err != nil {
					rt.Fatal(err)
				}
				// Watermarks that had not left are gone; the source repeats the last one after a restore.
				var open []sent
				for i := len(got) - 1; i < len(groups); i++ {
					open = append(open, groups[i]...)
				}
				groups = append(groups[:len(got)-1:len(got)-1], open)
				fn = &oracle{calls: map[int64]chan error{}}
				for _, item := range s.Lists[0].Items { // there may be more than have room at once
					v, _, err := a.op.(*asyncOp[int64, string]).codec.Decode(item[8:])
					if err != nil {
						rt.Fatal(err)
					}
					fn.call(v) <- nil
				}
				a = openAsync(rt, fn, opts, metadata.Subtask{Lists: s.Lists})
				waiting = nil
				o := a.op.(*asyncOp[int64, string])
				if err := a.desk.until(func() bool { return len(o.entries) == 0 && o.seq == int64(len(s.Lists[0].Items)) }); err != nil {
					rt.Fatal(err)
				}
			}
			take()
		}
		for _, v := range waiting {
			fn.call(v) <- nil
		}
		if err := a.op.EndInput(); err != nil {
			rt.Fatal(err)
		}
		take()
		if err := a.op.Close(); err != nil {
			rt.Fatal(err)
		}
		if len(got) != len(groups) {
			rt.Fatalf("%d watermarks left, want %d", len(got)-1, len(groups)-1)
		}
		for i, g := range groups {
			var want []element[string]
			for _, s := range g {
				want = append(want, element[string]{v: fmt.Sprint(s.v), ts: s.ts}, element[string]{v: fmt.Sprint(-s.v), ts: s.ts})
			}
			have := got[i]
			if !ordered {
				by := func(a, b element[string]) int { return strings.Compare(a.v, b.v) }
				slices.SortFunc(want, by)
				slices.SortFunc(have, by)
			}
			if !slices.Equal(have, want) {
				rt.Fatalf("between watermarks %d and %d: %v, want %v", i, i+1, have, want)
			}
		}
	})
}

// pendingAnswers is how many records in flight have no answer yet.
func (o *asyncOp[T, R]) pendingAnswers() int {
	n := 0
	for e := range o.entries {
		if !e.done {
			n++
		}
	}
	return n
}

// asked is an AsyncFunction made of functions.
type asked struct {
	invoke  func(context.Context, int64) ([]string, error)
	timeout func(int64) ([]string, error)
}

func (a asked) Open(*TaskContext) error { return nil }
func (a asked) Close() error            { return nil }
func (a asked) Invoke(ctx context.Context, v int64) ([]string, error) {
	return a.invoke(ctx, v)
}

type askedWithTimeout struct{ asked }

func (a askedWithTimeout) OnTimeout(v int64) ([]string, error) { return a.timeout(v) }

func TestAsyncWaitFailures(t *testing.T) {
	never := make(chan struct{})
	deaf := func(context.Context, int64) ([]string, error) { <-never; return nil, nil }
	answers := func(context.Context, int64) ([]string, error) { return []string{"at last"}, nil }
	attempts := 0
	flaky := func(context.Context, int64) ([]string, error) {
		if attempts++; attempts < 3 {
			return nil, errors.New("service is away")
		}
		return []string{"at last"}, nil
	}
	retry := AsyncRetry[string]{MaxAttempts: 3, Delay: func(int) time.Duration { return time.Millisecond }}
	short, long := 20*time.Millisecond, time.Hour
	for _, c := range []struct {
		name, want string
		fn         AsyncFunction[int64, string]
		timeout    time.Duration
		retry      AsyncRetry[string]
	}{
		{"an error fails the task", "ask, subtask 1/1: service is away", asked{invoke: flaky}, long, AsyncRetry[string]{}},
		{"a panic is an error", "panic: boom", asked{invoke: func(context.Context, int64) ([]string, error) { panic("boom") }}, long, AsyncRetry[string]{}},
		{"a function that never answers", ErrAsyncTimeout.Error(), asked{invoke: deaf}, short, AsyncRetry[string]{}},
		{"a time-out with a handler", "", askedWithTimeout{asked{deaf, func(v int64) ([]string, error) { return []string{"at last"}, nil }}}, short, AsyncRetry[string]{}},
		{"a handler that fails", "no answer, no default", askedWithTimeout{asked{deaf, func(v int64) ([]string, error) { return nil, errors.New("no answer, no default") }}}, short, AsyncRetry[string]{}},
		{"retries until it works", "", asked{invoke: flaky}, long, retry},
		{"a panic in OnError", "panic: boom", asked{invoke: flaky}, long, AsyncRetry[string]{MaxAttempts: 3, Delay: retry.Delay, OnError: func(error) bool { panic("boom") }}},
		{"a panic in OnResult", "panic: boom", asked{invoke: answers}, long, AsyncRetry[string]{MaxAttempts: 3, Delay: retry.Delay, OnResult: func([]string) bool { panic("boom") }}},
		{"a panic in Delay", "panic: boom", asked{invoke: flaky}, long, AsyncRetry[string]{MaxAttempts: 3, Delay: func(int) time.Duration { panic("boom") }}},
		{"a panic in a handler", "panic: boom", askedWithTimeout{asked{deaf, func(int64) ([]string, error) { panic("boom") }}}, short, AsyncRetry[string]{}},
		{"a function that ends its goroutine", guard.ErrExit.Error(), asked{invoke: func(context.Context, int64) ([]string, error) { runtime.Goexit(); return nil, nil }}, long, AsyncRetry[string]{}},
		{"a handler that ends its goroutine", guard.ErrExit.Error(), askedWithTimeout{asked{deaf, func(int64) ([]string, error) { runtime.Goexit(); return nil, nil }}}, short, AsyncRetry[string]{}},
		{"retries are bounded", "subtask 1/1: after 3 attempts: still away", asked{invoke: func(context.Context, int64) ([]string, error) { return nil, errors.New("still away") }}, long, retry},
		{"retries end at the time-out", ErrAsyncTimeout.Error(), asked{invoke: func(context.Context, int64) ([]string, error) { return nil, errors.New("away") }}, short,
			AsyncRetry[string]{MaxAttempts: 1 << 30, Delay: func(int) time.Duration { return time.Millisecond }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			attempts = 0
			a := openAsync(t, c.fn, AsyncOptions[string]{Timeout: c.timeout, Capacity: 2, Retry: c.retry}, metadata.Subtask{})
			err := a.in.Process(1, Meta{TS: NoTimestamp})
			if err == nil {
				err = a.desk.until(func() bool { return len(a.out.got) > 0 })
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want == "" && a.out.got[0].v != "at last":
				t.Errorf("got %v", a.out.got)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case strings.Contains(c.want, "boom") && !strings.Contains(guard.Stack(err), "TestAsyncWaitFailures"):
				t.Errorf("the panic's stack is not told: %q", guard.Stack(err))
			}
			if c.timeout == short && c.name != "retries end at the time-out" {
				go func() { time.AfterFunc(time.Millisecond, func() { never <- struct{}{} }) }() // let it go, for Close
			}
			if err := a.op.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Records that OnTimeout answered are done: calls that never return do not keep the job from ending, and the log tells of them. A task that
// failed waits for them, which is what its worker is ended for.
func TestAsyncWaitEndsWithoutCallsThatNeverReturn(t *testing.T) {
	defer func(d time.Duration) { lastCalls = d }(lastCalls)
	lastCalls = 10 * time.Millisecond
	let := make(chan struct{})
	fn := askedWithTimeout{asked{func(context.Context, int64) ([]string, error) { <-let; return nil, nil }, func(int64) ([]string, error) { return []string{"late"}, nil }}}
	a := openAsync(t, fn, AsyncOptions[string]{Timeout: time.Millisecond, Capacity: 1}, metadata.Subtask{})
	var log bytes.Buffer
	o := a.op.(*asyncOp[int64, string])
	o.ctx.Logger = zerolog.New(&log)
	for v := range int64(3) {
		if err := a.in.Process(v, Meta{TS: NoTimestamp}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.op.EndInput(); err != nil {
		t.Fatal(err)
	}
	if err := a.op.Close(); err != nil || len(a.out.got) != 3 {
		t.Fatalf("%d results, %v", len(a.out.got), err)
	}
	if !strings.Contains(log.String(), `"operator":"ask, subtask 1/1"`) || !strings.Contains(log.String(), `"calls":3`) {
		t.Fatalf("the log says %q", log.String())
	}
	life, fail := context.WithCancel(context.Background())
	a = openAsync(t, fn, AsyncOptions[string]{Timeout: time.Hour, Capacity: 1}, metadata.Subtask{})
	a.desk.ctx = life
	if err := a.in.Process(1, Meta{TS: NoTimestamp}); err != nil {
		t.Fatal(err)
	}
	fail()
	closed := make(chan error, 1)
	go func() { closed <- a.op.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("a failed task leaves its calls behind: %v", err)
	case <-time.After(10 * lastCalls):
	}
	close(let)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	o.calls.Wait()
}
