package stateprocessor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/stream/internal/filesystems"
)

// Option is an option of Open and New.
type Option func(*options)

type options struct {
	files   *fs.Registry
	backend string
	dir     string
	now     func() time.Time
	log     zerolog.Logger
}

// Files sets the file systems that savepoints are in. The default are local files and the HDFS of HADOOP_CONF_DIR.
func Files(reg *fs.Registry) Option { return func(o *options) { o.files = reg } }

// Backend sets where state is while it is worked on: "hashmap" (memory, the default) or "pebble" (files in the temporary folder), for state that is
// larger than memory. What can be read does not depend on it.
func Backend(kind string) Option { return func(o *options) { o.backend = kind } }

// TempDir sets the folder for temporary files, that of the system by default.
func TempDir(dir string) Option { return func(o *options) { o.dir = dir } }

// Clock sets the time that times to live are measured by, time.Now by default.
func Clock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// Logger sets what is told beside results; nothing by default.
func Logger(log zerolog.Logger) Option { return func(o *options) { o.log = log } }

func newOptions(opts []Option) (*options, error) {
	o := &options{backend: backend.HashMap, now: time.Now, log: zerolog.Nop()}
	for _, f := range opts {
		f(o)
	}
	if o.backend != backend.HashMap && o.backend != backend.Pebble {
		return nil, fmt.Errorf("stateprocessor: Backend(%q): want %q or %q", o.backend, backend.HashMap, backend.Pebble)
	}
	if o.files == nil {
		reg, err := filesystems.Registry()
		if err != nil {
			return nil, fmt.Errorf("stateprocessor: %w", err)
		}
		o.files = reg
	}
	return o, nil
}

// Savepoint is an opened savepoint or checkpoint. Close it. Not safe for concurrent use.
type Savepoint struct {
	uri  string
	meta metadata.Checkpoint
	o    *options
	src  *storage.Source
}

// Operator is what a savepoint holds of an operator. See inspect.Operator.
type Operator = inspect.Operator

// Open opens the savepoint or checkpoint at uri: its folder or its _metadata file. Errors: see storage.ReadMetadata.
func Open(ctx context.Context, uri string, opts ...Option) (*Savepoint, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	m, err := storage.ReadMetadata(ctx, o.files, uri)
	if err != nil {
		return nil, fmt.Errorf("stateprocessor: %w", err)
	}
	return &Savepoint{uri, m, o, storage.NewSource(o.files)}, nil
}

// Close closes what was opened.
func (s *Savepoint) Close() error { return s.src.Close() }

// Operators lists the operators that have state, and their states, as far as the metadata has them.
func (s *Savepoint) Operators() []Operator {
	return (&inspect.Snapshot{URI: s.uri, Meta: s.meta}).Operators()
}

// find returns the operator with a UID.
func find(m *metadata.Checkpoint, uid string) *metadata.Operator {
	return m.Operator(graph.OperatorIDOf(uid))
}

func (s *Savepoint) operator(uid string) (*metadata.Operator, error) {
	op := find(&s.meta, uid)
	if op == nil {
		var uids []string
		for i := range s.meta.Operators {
			if u := s.meta.Operators[i].UID; u != "" {
				uids = append(uids, u)
			}
		}
		return nil, fmt.Errorf("stateprocessor: %s has no state of an operator with the uid %q; it has: %q", s.uri, uid, uids)
	}
	return op, nil
}

// bench is where the state of one operator is worked on.
type bench struct {
	ctx *operator.Context
	dir string
	now func() time.Time
	op  *metadata.Operator // its state, of all subtasks together
}

// bench opens the state of an operator, all subtasks together. op is not changed.
func (o *options) bench(ctx context.Context, op metadata.Operator, src *storage.Source) (*bench, error) {
	all, err := metadata.Redistribute(op, 1, op.MaxParallelism)
	if err != nil {
		return nil, fmt.Errorf("stateprocessor: %w", err)
	}
	kind := o.backend
	for _, h := range all[0].Keyed {
		if h.Format != canonical.Format {
			kind = h.Format
		}
	}
	dir, err := os.MkdirTemp(o.dir, "thalweg-state-")
	if err != nil {
		return nil, fmt.Errorf("stateprocessor: temporary folder: %w", err)
	}
	b := &bench{dir: dir, now: o.now, op: &op}
	b.ctx = &operator.Context{
		Services: services{ctx, o.now}, ID: op.ID, Name: op.Name, UID: op.UID, Files: o.files, Parallelism: 1, MaxParallelism: op.MaxParallelism,
		Config: config.Configuration{config.StateBackend.Key: kind}, Logger: o.log, Metrics: noMetrics{}, State: all[0],
		StateDir: dir, StateMemory: benchMemory, Mark: &operator.Marker{},
	}
	if src != nil {
		b.ctx.StateSource = src
	}
	return b, nil
}

// benchMemory is what pebble may use for caches.
const benchMemory = 64 << 20

func (b *bench) close() error { return errors.Join(operator.CloseOffline(b.ctx), os.RemoveAll(b.dir)) }

// services stand for those of a task: nothing happens by itself.
type services struct {
	ctx context.Context //nolint:containedctx // the life of a bench is that of a call
	now func() time.Time
}

func (s services) Post(func() error)                  {}
func (s services) Now() int64                         { return s.now().UnixMilli() }
func (s services) Uptime() int64                      { return 0 }
func (s services) Backpressured() int64               { return 0 }
func (s services) At(int64, func() error)             {}
func (s services) After(int64, func() error)          {}
func (s services) Fail(error)                         {}
func (s services) SendEvent(graph.OperatorID, []byte) {}
func (s services) Wake()                              {}
func (s services) Context() context.Context           { return s.ctx }

type noMetrics struct{}

func (noMetrics) Counter(string) connector.Counter { return noCounter{} }
func (noMetrics) Gauge(string, func() float64)     {}

type noCounter struct{}

func (noCounter) Add(int64) {}
