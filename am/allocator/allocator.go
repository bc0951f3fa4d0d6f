package allocator

import (
	"cmp"
	"slices"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Options are the limits. The zero value never times out and never gives up.
type Options struct {
	FailureRate     float64       // failed starts per minute above which asks pause; 0 for no limit
	RetryInterval   time.Duration // that pause
	MaxFailures     int           // failed starts in a row after which Failed is given; 0 or less for no limit
	RegisterTimeout time.Duration // from grant to registration; 0 for no limit
	RecoveryTimeout time.Duration // from Recovered to registration; 0 gives up what is not registered by the next Tick
	ExcludeFailures int           // failed starts on a host within ExcludeFor after which it is left out for that time; 0 or less for never
	ExcludeFor      time.Duration
	PreemptAfter    time.Duration // from the ResourceManager's notice to the end of a preempted container
}

const (
	// failureWindow is the time over which FailureRate counts.
	failureWindow = time.Minute
	// releaseAgain is how long a release may stay unconfirmed before it is sent again.
	releaseAgain = 10 * time.Second
)

type state int

const (
	starting  state = iota // granted, the NodeManager was asked
	started                // the NodeManager took it
	recovered              // of an earlier attempt, not heard of yet
	registered
	releasing
)

func (s state) String() string {
	return [...]string{"starting", "started", "recovered", "registered", "releasing"}[s]
}

// entry is a container in the ledger.
type entry struct {
	Container
	bucket   *bucket // nil for a grant that nobody asked for
	state    state
	deadline time.Time // of registration; zero for none
	known    bool      // its TaskManager registered at some time
	sent     time.Time // releasing: when the release travelled last; zero for not yet
	cause    Cause     // releasing: why, if not by request
	silent   bool      // releasing: Ended was given already, or nobody ever heard of it
	order    int       // of arrival
	leave    leave
}

// bucket is a worker size.
type bucket struct {
	spec     Spec
	priority int32
	request  int64
	wanted   int
	live     int // entries in starting, started, recovered, registered
	atRM     int // open at the ResourceManager, as far as we know; -1 unknown
	asked    bool
}

// Allocator is the ledger. Not safe for concurrent use.
type Allocator struct {
	o          Options
	buckets    []*bucket // index i has priority i+1
	bySpec     map[Spec]*bucket
	containers map[yarn.ContainerID]*entry
	nodes      map[yarn.NodeID]time.Time // that leave, and when; zero when nobody knows
	bad        exclusions
	order      int
	inFlight   bool
	failures   []time.Time // of starts, in the last minute
	inARow     int
	paused     time.Time
	failed     bool
	out        []Effect
}

// New returns an empty ledger.
func New(o Options) *Allocator {
	return &Allocator{o: o, bySpec: map[Spec]*bucket{}, containers: map[yarn.ContainerID]*entry{}, nodes: map[yarn.NodeID]time.Time{}, bad: newExclusions()}
}

// Step applies ev and returns what the shell must do, in order. It never blocks and reads no clock. The caller owns the returned slice.
// Events about containers that the ledger does not hold are ignored: they are late. Not safe for concurrent use.
//
// Source: Flink YarnResourceManagerDriver; Hadoop AMRMClientImpl (absolute asks, pending releases).
func (a *Allocator) Step(ev Event) []Effect {
	a.out = nil
	switch e := ev.(type) {
	case Want:
		a.want(e)
	case Recovered:
		a.recover(e)
	case Beat:
		a.beat(e.At)
	case Answer:
		a.answer(e)
	case Ends:
		for _, c := range e.Completed {
			a.completed(c, e.At)
		}
		a.settle(e.At)
	case AnswerLost:
		a.lost()
	case Resync:
		a.resync()
	case Started:
		if c := a.containers[e.ID]; c != nil && c.state == starting {
			c.state = started
		}
	case StartFailed:
		if c := a.containers[e.ID]; c != nil && (c.state == starting || c.state == started) {
			a.giveUp(c, e.At, NotStarted, e.Reason)
		}
	case Registered:
		if c := a.containers[e.ID]; c != nil && c.state != releasing {
			c.state, c.known, c.deadline = registered, true, time.Time{}
			a.inARow = 0
			delete(a.bad.failures, c.Node.Host)
		}
	case Release:
		if c := a.containers[e.ID]; c != nil && c.state != releasing {
			a.out = append(a.out, Stop{c.Container})
			a.release(c, Released, false)
		}
	case Tick:
		a.tick(e.At)
	}
	return a.out
}

func (a *Allocator) bucketOf(s Spec) *bucket {
	b := a.bySpec[s]
	if b == nil {
		n := len(a.buckets) + 1
		b = &bucket{spec: s, priority: int32(n), request: int64(n)} //nolint:gosec // a handful
		a.buckets = append(a.buckets, b)
		a.bySpec[s] = b
		for _, c := range a.containers { // containers of earlier attempts came before their size was asked for
			if c.bucket == nil && c.state != releasing && c.Priority == b.priority {
				c.bucket = b
				b.live++
			}
		}
	}
	return b
}

func (a *Allocator) want(e Want) {
	b := a.bucketOf(e.Spec)
	b.wanted = max(e.Count, 0)
	// Too many: grants that are not started yet go back, the newest first; started ones are the caller's to release. Those of an earlier
	// attempt wait for their deadline, since the wish of a recovering job grows step by step. Those that leave are to be released by the caller
	// when what takes their place is there: none that starts goes back for them.
	for b.live-a.leavingIn(b) > b.wanted {
		c := a.newest(b)
		if c == nil {
			break
		}
		a.out = append(a.out, Stop{c.Container})
		a.release(c, Released, false)
	}
	if a.pending(b) {
		a.out = append(a.out, BeatNow{})
	}
}

func (a *Allocator) newest(b *bucket) *entry {
	var found *entry
	for _, c := range a.containers {
		if c.bucket == b && c.state == starting && (found == nil || c.order > found.order) {
			found = c
		}
	}
	return found
}

func (a *Allocator) add(c Container, b *bucket, s state) *entry {
	a.order++
	n := &entry{Container: c, bucket: b, state: s, order: a.order}
	a.containers[c.ID] = n
	if b != nil && s != releasing {
		b.live++
	}
	return n
}

func (a *Allocator) recover(e Recovered) {
	for _, c := range e.Containers {
		if a.containers[c.ID] != nil {
			continue // registered anew with the same ResourceManager: known already
		}
		n := a.add(c, a.byKey(c), recovered)
		n.deadline = e.At.Add(a.o.RecoveryTimeout)
	}
}

// byKey finds the bucket of a grant: by priority, which is unique per size, whatever the grant says about its size.
func (a *Allocator) byKey(c Container) *bucket {
	if i := int(c.Priority) - 1; i >= 0 && i < len(a.buckets) {
		return a.buckets[i]
	}
	return nil
}

// open is how many containers of b shall be open at the ResourceManager.
func (a *Allocator) open(b *bucket, at time.Time) int {
	n := max(b.wanted-b.live, 0)
	if a.failed || at.Before(a.paused) {
		n = min(n, max(b.atRM, 0)) // no new asks; those that are open stay
	}
	return n
}

// pending reports whether the next call has something to say about b, pauses aside.
func (a *Allocator) pending(b *bucket) bool { return max(b.wanted-b.live, 0) != b.atRM }

func (a *Allocator) beat(at time.Time) {
	req := Allocate{}
	for _, b := range a.buckets {
		b.asked = false
		if n := a.open(b, at); n != b.atRM {
			req.Asks = append(req.Asks, Ask{Spec: b.spec, Priority: b.priority, RequestID: b.request, Count: n})
			b.atRM, b.asked = n, true
		}
	}
	req.Exclude, req.Include = a.bad.changes()
	for _, c := range a.sorted() {
		if c.state == releasing && (c.sent.IsZero() || at.Sub(c.sent) >= releaseAgain) {
			c.sent = at
			req.Releases = append(req.Releases, c.ID)
		}
	}
	a.inFlight = true
	a.out = append(a.out, req)
}

func (a *Allocator) answer(e Answer) {
	a.inFlight = false
	// Completions first: a container that ended makes room for a grant in the same answer.
	for _, s := range e.Completed {
		a.completed(s, e.At)
	}
	for _, g := range e.Granted {
		if a.containers[g.ID] != nil {
			continue // told twice, after a call that was repeated
		}
		b := a.byKey(g)
		switch {
		case b == nil:
		case b.asked: // made before the ask came in, or after it: the count over there is unknown until it is said again
			b.atRM = -1
		case b.atRM > 0:
			b.atRM--
		}
		if b == nil || b.live >= b.wanted || a.failed || a.excluded(g.Node.Host) {
			n := a.add(g, b, releasing)
			n.cause, n.silent = Released, true
			a.out = append(a.out, BeatNow{})
			continue
		}
		n := a.add(g, b, starting)
		if a.o.RegisterTimeout > 0 {
			n.deadline = e.At.Add(a.o.RegisterTimeout)
		}
		a.out = append(a.out, Start{Container: g, Spec: b.spec})
	}
	a.leaving(e)
	a.look(e)
	for _, b := range a.buckets {
		b.asked = false
	}
	a.settle(e.At)
}

// settle asks for a call when the ResourceManager's counts are not the ones that are wanted.
func (a *Allocator) settle(at time.Time) {
	for _, b := range a.buckets {
		if a.open(b, at) != b.atRM {
			a.out = append(a.out, BeatNow{})
			return
		}
	}
}

func (a *Allocator) completed(s Status, at time.Time) {
	c := a.containers[s.ID]
	if c == nil {
		return // of an earlier attempt, or released and confirmed before
	}
	delete(a.containers, s.ID)
	if c.state == releasing {
		if !c.silent {
			a.out = append(a.out, Ended{Container: c.Container, Registered: c.known, Cause: c.cause, Exit: s.Exit})
		}
		return
	}
	if c.bucket != nil {
		c.bucket.live--
	}
	end := Ended{Container: c.Container, Registered: c.known, Cause: causeOf(s.Exit), Exit: s.Exit, Detail: s.Diagnostics}
	a.out = append(a.out, end)
	if !c.known && !end.Cause.Blameless() {
		a.failure(end, at)
	}
	if !c.known && !end.Cause.Blameless() || end.Cause == Disks {
		a.blame(end, at)
	}
}

// giveUp ends a container that did not get to work, and counts it unless it is not to blame.
func (a *Allocator) giveUp(c *entry, at time.Time, cause Cause, detail string) {
	end := Ended{Container: c.Container, Registered: c.known, Cause: cause, Exit: yarn.ExitInvalid, Detail: detail}
	a.out = append(a.out, Stop{c.Container}, end)
	a.release(c, cause, true)
	if !cause.Blameless() {
		a.failure(end, at)
		a.blame(end, at)
	}
}

func (a *Allocator) release(c *entry, cause Cause, silent bool) {
	if c.bucket != nil {
		c.bucket.live--
	}
	c.state, c.cause, c.silent, c.sent = releasing, cause, silent, time.Time{}
	a.out = append(a.out, BeatNow{})
}

func (a *Allocator) failure(end Ended, at time.Time) {
	a.inARow++
	a.failures = append(a.failures, at)
	a.forget(at)
	if a.o.MaxFailures > 0 && a.inARow >= a.o.MaxFailures && !a.failed {
		a.failed = true
		a.out = append(a.out, Failed{Failures: a.inARow, Last: end})
		return
	}
	if a.o.FailureRate > 0 && float64(len(a.failures)) > a.o.FailureRate && !at.Before(a.paused) {
		a.paused = at.Add(a.o.RetryInterval)
		a.out = append(a.out, Paused{Until: a.paused, Failures: len(a.failures)})
	}
}

func (a *Allocator) forget(at time.Time) {
	i := 0
	for i < len(a.failures) && at.Sub(a.failures[i]) >= failureWindow {
		i++
	}
	a.failures = slices.Delete(a.failures, 0, i)
}

func (a *Allocator) lost() {
	a.inFlight = false
	a.bad.unknown()
	for _, b := range a.buckets {
		if b.asked {
			b.atRM, b.asked = -1, false
		}
	}
	for _, c := range a.containers {
		c.sent = time.Time{}
	}
	a.out = append(a.out, BeatNow{})
}

func (a *Allocator) resync() {
	a.inFlight = false
	a.bad.told, a.bad.sent = map[string]bool{}, nil
	for _, b := range a.buckets {
		b.atRM, b.asked = -1, false // a new ResourceManager knows no asks
		if b.wanted == 0 {
			b.atRM = 0
		}
	}
	for _, c := range a.containers {
		c.sent = time.Time{}
	}
	a.out = append(a.out, BeatNow{})
}

func (a *Allocator) tick(at time.Time) {
	for _, c := range a.sorted() {
		switch {
		case c.state != releasing && c.leave.over(at):
			a.stays(c)
		case c.state == recovered && !at.Before(c.deadline):
			a.giveUp(c, at, NotRecovered, "")
		case (c.state == starting || c.state == started) && !c.deadline.IsZero() && !at.Before(c.deadline):
			a.giveUp(c, at, Unregistered, "in "+a.o.RegisterTimeout.String()+"; see its log")
		}
	}
	a.forgiveHosts(at)
	if !a.paused.IsZero() && !at.Before(a.paused) {
		a.paused = time.Time{}
		a.out = append(a.out, BeatNow{})
	}
}

// sorted returns the containers by arrival, so that effects have one order.
func (a *Allocator) sorted() []*entry {
	all := make([]*entry, 0, len(a.containers))
	for _, c := range a.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y *entry) int { return cmp.Compare(x.order, y.order) })
	return all
}

// Counts is the ledger in numbers.
type Counts struct {
	Wanted, Open, Starting, Recovered, Registered, Releasing int
}

// Counts returns the ledger in numbers; Open is what the ResourceManager still owes.
func (a *Allocator) Counts() Counts {
	var n Counts
	for _, b := range a.buckets {
		n.Wanted += b.wanted
		n.Open += max(b.wanted-b.live, 0)
	}
	for _, c := range a.containers {
		switch c.state {
		case starting, started:
			n.Starting++
		case recovered:
			n.Recovered++
		case registered:
			n.Registered++
		case releasing:
			n.Releasing++
		}
	}
	return n
}

// Busy reports whether the shell should beat at its fast pace: something is open, or a release waits to be confirmed.
func (a *Allocator) Busy() bool {
	n := a.Counts()
	return n.Open > 0 || n.Releasing > 0
}

// Containers lists the containers that live, by arrival; those that are being released are not among them.
func (a *Allocator) Containers() []Container {
	var out []Container
	for _, c := range a.sorted() {
		if c.state != releasing {
			out = append(out, c.Container)
		}
	}
	return out
}

// Deadline is when the next Tick is due; zero for never.
func (a *Allocator) Deadline() time.Time {
	next := a.paused
	for _, until := range a.bad.until {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	for _, c := range a.containers {
		for _, due := range []time.Time{c.deadline, c.leave.expires} {
			if c.state != releasing && !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
	}
	return next
}
