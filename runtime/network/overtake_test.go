package network

import (
	"slices"
	"testing"

	"github.com/rs/zerolog"
)

// river is a soft partition of one channel with a gate at its end, in this process or in another one.
type river struct {
	t        *testing.T
	p        *Partition
	g        *Gate
	wake     chan struct{}
	attended chan struct{}
	announce chan Event
	left     chan int64
}

func newRiver(t *testing.T, remote bool, restored ...Restored) *river {
	t.Helper()
	r := &river{t: t, wake: make(chan struct{}, 1), attended: make(chan struct{}, 1), announce: make(chan Event, 4), left: make(chan int64, 4)}
	tell := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	from := New(Config{BufferSize: 8}, zerolog.Nop())
	to, addr := from, ""
	t.Cleanup(func() { _ = from.Close() })
	if remote {
		to = New(Config{BufferSize: 8}, zerolog.Nop())
		t.Cleanup(func() { _ = to.Close() })
		var err error
		if addr, err = from.Listen(t.Context(), "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	id := PartitionID{Output: 1}
	var err error
	if r.p, err = from.NewSoftPartition(t.Context(), id, 1, Soft{Overdraft: 3, Filled: func() {}, Room: func() {}, Left: func(n int64) { r.left <- n }}); err != nil {
		t.Fatal(err)
	}
	r.g, err = to.NewGateWith(t.Context(), []Source{{Partition: id, Address: addr}}, tell(r.wake), GateOptions{Restored: restored,
		Attention: tell(r.attended), Announce: func(ev Event) { r.announce <- ev }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.g.Close)
	return r
}

// put writes a buffer of its own.
func (r *river) put(s string) {
	r.t.Helper()
	c := r.p.Channel(0)
	if err := c.Put(append(c.Buf(), (s + "........")[:8]...)); err != nil {
		r.t.Fatal(err)
	}
}

// next polls until there is something: a buffer's first byte, or a barrier with what it overtook, "B(ab)" or "b" for one that did not.
func (r *river) next() string {
	r.t.Helper()
	for {
		item, ok, err := r.g.Poll()
		switch {
		case err != nil:
			r.t.Fatal(err)
		case !ok:
			<-r.wake
		case item.Data != nil:
			r.g.Release(item)
			return string(item.Data[:1])
		case item.Event.Options&Urgent == 0:
			return "b"
		default:
			s := "B("
			for _, o := range item.Overtaken {
				s += string(o.Data[:1])
			}
			return s + ")"
		}
	}
}

func (r *river) rest(n int) (out []string) {
	for range n {
		out = append(out, r.next())
	}
	return out
}

// queued waits until n items have arrived.
func (r *river) queued(n int) {
	r.t.Helper()
	eventually(r.t, "the items to arrive", func() bool { return r.g.Queued() >= n })
}

// first are the first bytes of buffers in a row.
func first(b []byte) (s string) {
	for i := 0; i < len(b); i += 8 {
		s += string(b[i : i+1])
	}
	return s
}

// A barrier overtakes what waits at the producer, which gets a copy, and what waits at the consumer, which is told of it; all of it comes
// behind the barrier, in order.
func TestBarrierOvertakes(t *testing.T) {
	r := newRiver(t, false, Restored{0, []byte("r")})
	r.put("a")
	r.put("b")
	if got := r.next(); got != "r" {
		t.Fatalf("%s was read before what was restored", got)
	}
	waited, err := r.p.Overtake(Event{Kind: Barrier, Checkpoint: 1})
	if err != nil || first(waited[0]) != "ab" {
		t.Fatalf("overtook %q, %v", waited, err)
	}
	<-r.attended
	r.put("c")
	if got := r.rest(4); !slices.Equal(got, []string{"B()", "a", "b", "c"}) {
		t.Fatal(got)
	}
	if waited, err := r.p.Overtake(Event{Kind: Barrier, Checkpoint: 2}); err != nil || waited[0] != nil {
		t.Fatalf("overtook %q, %v", waited, err)
	}
	if got := r.next(); got != "B()" {
		t.Fatal(got)
	}
}

func TestBarrierOvertakesWhatHasArrived(t *testing.T) {
	r := newRiver(t, true, Restored{0, []byte("r")}, Restored{0, []byte("s")})
	for _, s := range []string{"a", "b", "c", "d"} { // two of them by the credit of the channel
		r.put(s)
	}
	r.queued(2 + 2)
	waited, err := r.p.Overtake(Event{Kind: Barrier, Checkpoint: 1})
	if err != nil {
		t.Fatal(err)
	}
	<-r.attended
	got := r.next()
	if all := got[2:len(got)-1] + first(waited[0]); all != "rsabcd" {
		t.Fatalf("%s and %q at the producer: not all that was under way, once and in order", got, waited)
	}
	if got := r.rest(6); !slices.Equal(got, []string{"r", "s", "a", "b", "c", "d"}) {
		t.Fatal(got)
	}
}

// A barrier that may turn keeps its place until it is told to hasten, at either end.
func TestBarrierTurns(t *testing.T) {
	turn := Event{Kind: Barrier, Checkpoint: 7, Options: MayTurn}
	t.Run("at the producer", func(t *testing.T) {
		r := newRiver(t, false)
		r.put("a")
		if err := r.p.Broadcast(turn); err != nil {
			t.Fatal(err)
		}
		r.put("b")
		if waited := r.p.Hasten(6); waited[0] != nil {
			t.Fatalf("another checkpoint's barrier overtook %q", waited)
		}
		if waited := r.p.Hasten(7); first(waited[0]) != "a" {
			t.Fatalf("overtook %q", waited)
		}
		<-r.attended
		if got := r.rest(3); !slices.Equal(got, []string{"B()", "a", "b"}) {
			t.Fatal(got)
		}
		if waited := r.p.Hasten(7); waited[0] != nil {
			t.Fatalf("it overtook %q again", waited)
		}
		select {
		case n := <-r.left:
			t.Errorf("barrier %d left in its place", n)
		default:
		}
	})
	t.Run("at the consumer", func(t *testing.T) {
		r := newRiver(t, true)
		r.put("a")
		if err := r.p.Broadcast(turn); err != nil {
			t.Fatal(err)
		}
		r.put("b")
		if ev := <-r.announce; ev.Checkpoint != 7 {
			t.Fatalf("%+v was announced", ev)
		}
		if n := <-r.left; n != 7 {
			t.Fatalf("barrier %d left", n)
		}
		r.queued(3)
		r.g.Hasten(7)
		if got := r.rest(3); !slices.Equal(got, []string{"B(a)", "a", "b"}) {
			t.Fatal(got)
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		r := newRiver(t, false)
		r.put("a")
		if err := r.p.Broadcast(turn); err != nil {
			t.Fatal(err)
		}
		if got := r.rest(2); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatal(got)
		}
		if n := <-r.left; n != 7 {
			t.Fatalf("barrier %d left", n)
		}
		if waited := r.p.Hasten(7); waited[0] != nil {
			t.Fatalf("overtook %q", waited)
		}
	})
}

// With soft bounds a writer goes on above them for the overdraft, and is told that it should stop; Overtake never waits.
func TestSoftBounds(t *testing.T) {
	room := make(chan struct{}, 1)
	filled := 0
	e := New(Config{BufferSize: 8, BuffersPerChannel: 2}, zerolog.Nop())
	t.Cleanup(func() { _ = e.Close() })
	id := PartitionID{}
	p, err := e.NewSoftPartition(t.Context(), id, 1, Soft{Overdraft: 2, Filled: func() { filled++ }, Room: func() { room <- struct{}{} }, Left: func(int64) {}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := e.NewGate(t.Context(), []Source{{Partition: id}}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	put := func() {
		c := p.Channel(0)
		if err := c.Put(append(c.Buf(), "12345678"...)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		put()
	}
	if p.Full() || filled > 0 {
		t.Fatal("full below the bound of four buffers")
	}
	for range 3 {
		put() // the last two are overdraft
	}
	if !p.Full() || filled != 1 {
		t.Fatalf("full %t, told %d times", p.Full(), filled)
	}
	blocked := make(chan struct{})
	go func() {
		put()
		close(blocked)
	}()
	take := func() {
		item, ok, err := g.Poll()
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		g.Release(item)
	}
	take()
	<-blocked // it waited for the overdraft to be given back
	if waited, err := p.Overtake(Event{Kind: Barrier, Checkpoint: 1}); err != nil || len(waited[0]) != 6*8 {
		t.Fatal(waited, err)
	}
	for range 4 { // the barrier and three
		take()
	}
	<-room
	if p.Full() {
		t.Fatal("full with three buffers")
	}
}
