package streamtest

import (
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Option is a setting of a Job or Harness.
type Option func(*settings)

type settings struct {
	conf        map[string]string
	args        []string
	parallelism int
	restarts    bool
	rescale     bool
	now         time.Time
	snapshot    []byte
	replace     []replacement
}

type replacement struct {
	name string
	what string // "source" or "sink"
	with func(*graph.Node) error
}

// Parallelism is that of operators that set none. The default is 1.
func Parallelism(n int) Option { return func(s *settings) { s.parallelism = n } }

// Config sets a configuration key, as -D does.
func Config(key, value string) Option { return func(s *settings) { s.conf[key] = value } }

// Backend chooses the state backend: "hashmap" (the default) or "pebble".
func Backend(kind string) Option { return Config("state.backend.type", kind) }

// Args are the program's arguments.
func Args(args ...string) Option { return func(s *settings) { s.args = args } }

// StartTime is the processing time at the start. The default is 2026-01-01T00:00:00Z.
func StartTime(t time.Time) Option { return func(s *settings) { s.now = t } }

// NoRestarts turns off the restarts that happen by themselves.
func NoRestarts() Option { return func(s *settings) { s.restarts = false } }

// FromSnapshot starts from what Snapshot returned, perhaps in another version of the program.
func FromSnapshot(b []byte) Option { return func(s *settings) { s.snapshot = b } }

// Source puts in in the place of the source with this UID or name. The source's watermark strategy stays: it takes the event time from the
// records, and its watermark follows each push.
func Source[T any](uid string, in *Input[T]) Option {
	return func(s *settings) {
		in.strategy = true
		s.replace = append(s.replace, replacement{uid, "source", in.substitute})
	}
}

// Sink puts out in the place of the sink with this UID or name.
func Sink[T any](uid string, out *Output[T]) Option {
	return func(s *settings) { s.replace = append(s.replace, replacement{uid, "sink", out.substitute}) }
}

func newSettings(opts []Option) settings {
	s := settings{conf: map[string]string{}, parallelism: 1, restarts: true, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, o := range opts {
		o(&s)
	}
	return s
}
