package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/onekey"
)

// Services are what a task offers to its operators.
type Services interface {
	// Post runs fn on the task's goroutine; safe from any goroutine. It is dropped when the task has ended.
	Post(fn func() error)
	// Now is the processing time in milliseconds: the machine's clock, which may be set forward and back.
	Now() int64
	// Uptime is a time in milliseconds that goes on whatever the clock is set to. It begins anywhere.
	Uptime() int64
	// Backpressured is how long the task was held up by what follows it, in milliseconds, all together.
	Backpressured() int64
	// At runs fn on the task's goroutine at the given processing time, once.
	At(ms int64, fn func() error)
	// After runs fn on the task's goroutine when so many milliseconds have passed, once, whatever the clock is set to.
	After(ms int64, fn func() error)
	// Fail fails the task; safe from any goroutine.
	Fail(err error)
	// SendEvent sends to the operator's half in the coordinator process.
	SendEvent(op graph.OperatorID, payload []byte)
	// Wake makes the task look for work; safe from any goroutine.
	Wake()
	// Context ends with the task.
	Context() context.Context
}

// Context is what a Factory gets.
type Context struct {
	Services
	ID                 graph.OperatorID
	Name, UID          string
	CallSite           string        // file:line of the user's call; "" when it is not known
	TimesFrom          func() string // graph.Node.TimesFrom, which walks over the graph; nil when it is not known
	Index              int           // position in the chain, head first
	JobID, JobName     string
	Embedded           bool // the job ends with this process
	Files              *fs.Registry
	Subtask            int
	Parallelism        int
	MaxParallelism     int
	Attempt            int
	Config             config.Configuration
	Logger             zerolog.Logger
	Metrics            connector.Metrics
	RestoredCheckpoint int64
	State              metadata.Subtask // this subtask's share of the restored state
	StateSource        state.Source
	StateDir           string // private local directory for keyed state
	StateMemory        int64
	StatePool          *state.Pool // shared with other operators of the slot; nil: StateMemory is this operator's alone
	Checkpointing      bool        // commits follow: those of checkpoints or, in BATCH, of the end
	// Batch says that the job runs in BATCH: what a keyed operator gets is sorted by key.
	Batch bool
	// Side holds the Receiver of each side output that is read, by tag.
	Side map[string]any
	Mark *Marker

	keyed         state.Backend
	opening       bool          // Open is under way, which tells all misfits
	misfits       []misfit      // stored state that this operator cannot open
	spare         state.Backend // what is opened instead
	keyEnds       []keyEnd
	claims        map[claimed]claim // names of user state that are taken
	opened        bool              // Open has returned
	carried       carriedLists
	layout        string
	vacant        func() bool // no window is open: none is lost by another layout; nil for never
	wrongKey      func(key string) error
	keySite       string // file:line of KeyBy, when there was a record
	subtaskStates map[string]subtaskState
	sizes         stateSizes
	listing       bool  // keep listers, for Offline
	listers       []any // keyLister of each keyed state that is open
}

// Marker remembers which operator of the chain runs user code (its Index), so that a panic can be attributed.
type Marker struct{ Current int }

// Enter notes that user code of this operator runs from here.
func (c *Context) Enter() { c.Mark.Current = c.Index }

// Describe is "name (uid) at file:line, subtask i/n" for errors.
func (c *Context) Describe() string {
	text := c.Name
	if c.UID != "" {
		text += " (uid " + c.UID + ")"
	}
	if c.CallSite != "" {
		text += " at " + c.CallSite
	}
	return fmt.Sprintf("%s, subtask %d/%d", text, c.Subtask+1, c.Parallelism)
}

// noTime is what is wrong with a record that has no event time where one is needed.
func (c *Context) noTime() error {
	at := ""
	if c.TimesFrom != nil {
		if from := c.TimesFrom(); from != "" {
			at = " at " + from
		}
	}
	return lasting("record has no event time; give the stream a watermark strategy with a timestamp function%s (FromSource or AssignTimestampsAndWatermarks)", at)
}

// UserError is a failure of user code.
type UserError struct {
	Operator string
	Err      error
}

func (e *UserError) Error() string { return fmt.Sprintf("operator %s: %v", e.Operator, e.Err) }
func (e *UserError) Unwrap() error { return e.Err }

// wrap attributes an error of user code to the operator, once.
func (c *Context) wrap(err error) error {
	var u *UserError
	if err == nil || errors.As(err, &u) {
		return err
	}
	return &UserError{Operator: c.Describe(), Err: err}
}

// Backend returns the operator's keyed state backend, made and restored at the first call.
func (c *Context) Backend() (state.Backend, error) {
	if c.keyed != nil {
		return c.keyed, nil
	}
	if c.Batch {
		b, err := onekey.New(state.Config{Range: state.RangeOf(c.MaxParallelism, c.Parallelism, c.Subtask), MaxParallelism: c.MaxParallelism})
		if err != nil {
			return nil, err
		}
		c.keyed = b
		return b, nil
	}
	kind := config.StateBackend.Value(c.Config)
	b, err := backend.New(kind, state.Config{
		Range:          state.RangeOf(c.MaxParallelism, c.Parallelism, c.Subtask),
		MaxParallelism: c.MaxParallelism,
		Dir:            c.StateDir,
		MemoryBytes:    c.StateMemory,
		Pool:           c.StatePool,
		Restore:        c.State.Keyed,
		Source:         c.StateSource,
		ReuseRestored:  true, // files that this job does not own come as exclusive ones, which are not carried over
		Compress:       config.SnapshotCompression.Value(c.Config),
		Context:        c.Services.Context(),
		Logger:         c.Logger,
	})
	if err != nil {
		return nil, c.restoring("keyed state", err)
	}
	c.keyed = b
	return b, nil
}

// List returns the restored items of a list state.
func (c *Context) List(name string) [][]byte {
	for _, l := range c.State.Lists {
		if l.Name == name {
			return l.Items
		}
	}
	return nil
}

// KeyedBase is embedded by operators with keyed state: it snapshots and closes the backend.
type KeyedBase struct {
	Base
	Ctx *Context
}

// Snapshot snapshots the operator's lists and the keyed backend.
func (k *KeyedBase) Snapshot(b Barrier) (Snapshot, error) {
	lists := k.Ctx.snapshotLists()
	if k.Ctx.keyed == nil || k.Ctx.Batch { // at the end of a stage, in BATCH, there is no key
		return Snapshot{Lists: lists}, nil
	}
	s, err := k.Ctx.keyed.Snapshot(b.ID, b.Canonical)
	if err != nil {
		return Snapshot{}, fmt.Errorf("operator %s: snapshot: %w", k.Ctx.Describe(), err)
	}
	return Snapshot{Lists: lists, Keyed: []state.Snapshot{k.Ctx.measured(s)}}, nil
}

// CheckpointComplete tells the backend.
func (k *KeyedBase) CheckpointComplete(id int64) error {
	if k.Ctx.keyed != nil {
		k.Ctx.keyed.CheckpointCompleted(id)
	}
	return nil
}

// CheckpointAborted tells the backend.
func (k *KeyedBase) CheckpointAborted(id int64) {
	if k.Ctx.keyed != nil {
		k.Ctx.keyed.CheckpointAborted(id)
	}
}

// Close closes the backend.
func (k *KeyedBase) Close() error {
	if k.Ctx.keyed == nil {
		return nil
	}
	b := k.Ctx.keyed
	k.Ctx.keyed = nil
	return b.Close()
}

// OpenTable opens a keyed table of this operator.
func OpenTable[K comparable, V any](c *Context, name string, key serde.Codec[K], value serde.Codec[V]) (state.Table[K, V], error) {
	var t state.Table[K, V]
	err := c.openState("state", name, func(b state.Backend) (err error) {
		t, err = backend.OpenTable(b, state.TableDesc[K, V]{Name: name, Key: key, Value: value, Verify: verifyKeys(c, key)})
		return err
	})
	return t, err
}

// OpenTimers opens a timer set of this operator.
func OpenTimers[K comparable](c *Context, name string, key serde.Codec[K]) (state.Timers[K], error) {
	var t state.Timers[K]
	err := c.openState("timers", name, func(b state.Backend) (err error) {
		t, err = backend.OpenTimers(b, state.TimersDesc[K]{Name: name, Key: key})
		return err
	})
	return t, err
}
