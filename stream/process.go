package stream

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// ProcessFunction is a function over a stream without keys, with side outputs. newFn makes a new instance at each call;
// embed Plain in functions that hold nothing to open or close. Its methods, each of which returns an error: Open(rt *TaskContext),
// ProcessElement(ctx *ProcessContext, v T, out *Collector[R]), Close().
type ProcessFunction[T, R any] = operator.ProcessFunction[T, R]

// TaskContext and ProcessContext are what functions without keys work with.
type (
	// TaskContext is given to Open: Subtask(), Parallelism(), Attempt(), Logger() zerolog.Logger, Metrics() with Counter(name).Add(n) and
	// Gauge(name, fn), the operator states ListState[V](name), UnionListState[V](name) and BroadcastState[UK, V](name), and
	// RestoredCheckpoint() (id, ok).
	TaskContext = operator.TaskContext
	// ProcessContext is given with each record: Timestamp() (time.Time, ok), Watermark() (time.Time, ok), ProcessingTime() time.Time,
	// Output(tag, v).
	ProcessContext = operator.ProcessContext
)

// CheckpointedFunction and CheckpointListener are further methods that process functions of every kind may have: SnapshotState(checkpointID int64)
// error runs at each checkpoint before operator state is stored, NotifyCheckpointComplete(checkpointID int64) error and
// NotifyCheckpointAborted, which is alike, when it is known what became of it.
type (
	CheckpointedFunction = operator.CheckpointedFunction
	CheckpointListener   = operator.CheckpointListener
)

// Plain is embedded by functions without keys that hold nothing to open or close.
type Plain struct{}

// Open does nothing.
func (Plain) Open(*TaskContext) error { return nil }

// Close does nothing.
func (Plain) Close() error { return nil }

// OutputTag names a side output of S: functions emit to it with ctx.Output(tag, v), and GetSideOutput reads it.
type OutputTag[S any] = operator.OutputTag[S]

// NewOutputTag returns the tag of this name, which is unique in an operator.
func NewOutputTag[S any](id string) OutputTag[S] { return OutputTag[S]{ID: id} }

// GetSideOutput returns what the operator's function emits under tag.
func (s SingleOutputStreamOperator[T]) GetSideOutput[S any](tag OutputTag[S]) DataStream[S] {
	return sideOutput(settingsOfStream(s.f), tag)
}

func sideOutput[S any](of settings, tag OutputTag[S]) DataStream[S] {
	env, n := of.env, of.node
	t, err := operator.TypeOf[S]()
	readAs(of, tag.ID, t, err)
	return DataStream[S]{&flow{e: env, ins: []upstream{{node: n, tag: tag.ID}}}}
}

// declare notes the type of the late records that an operator sends to a side output.
func declare[T any](n *graph.Node, late OutputTag[T]) {
	t, err := operator.TypeOf[T]()
	if late.ID == "" || err != nil {
		return
	}
	if n.Late == nil {
		n.Late = map[string]string{}
	}
	n.Late[late.ID] = t.Name()
}

// readAs notes the type that a side output is read as.
// sideless are the kinds of operators whose functions have nothing to write to a side output with.
var sideless = map[string]bool{"map": true, "filter": true, "flatmap": true}

func readAs(of settings, tag string, t operator.Type, err error) {
	env, n := of.env, of.node
	switch {
	case tag == "":
		env.mistake("GetSideOutput: the tag has no name")
	case err != nil:
		env.mistake("GetSideOutput(%q): %v", tag, err)
	case n.Source || sideless[n.Kind]:
		env.mistake("GetSideOutput(%q): %s (%s) has no side outputs: nothing can be written there; call it on the stream that a process function, a window or a join returned", tag, n.Name, n.CallSite)
	case n.Late[tag] != "" && n.Late[tag] != t.Name():
		env.mistake("GetSideOutput(%q): the operator at %s sends late records there, which are %s, not %s", tag, n.CallSite, n.Late[tag], t.Name())
	case n.Side[tag] != nil && n.Side[tag].(operator.Type).Name() != t.Name():
		env.mistake("GetSideOutput(%q): the tag is already read as %s, not %s", tag, n.Side[tag].(operator.Type).Name(), t.Name())
	default:
		if n.Side == nil {
			n.Side = map[string]any{}
		}
		n.Side[tag] = t
	}
}
