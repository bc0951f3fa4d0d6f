package stream

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Environment is where a program's graph is built. It is not safe for concurrent use.
type Environment struct {
	name  string
	conf  config.Configuration // submitted; wins over what the program sets
	prog  config.Configuration // set by the program
	args  []string
	g     graph.StreamGraph
	wrong []*mistake
	begun []*unfinished
	owned map[string]string // by what sinks own: where the one is
	built bool              // its program is made: what is added now would be in none
}

func newEnvironment(name string, conf config.Configuration, args []string) *Environment {
	return &Environment{name: name, conf: conf, prog: config.Configuration{}, args: args}
}

// Args are the program's arguments, without its name; the same in every role.
func (e *Environment) Args() []string { return e.args }

// CheckpointingMode is the guarantee inside of the job.
type CheckpointingMode string

const (
	// ExactlyOnce aligns barriers, or lets them overtake records (EnableUnalignedCheckpoints): state has each record once after a restart.
	ExactlyOnce CheckpointingMode = "exactly_once"
	// AtLeastOnce does not align them: state may have records twice after a restart.
	AtLeastOnce CheckpointingMode = "at_least_once"
)

// EnableCheckpointing turns checkpoints on, ExactlyOnce or AtLeastOnce. A submitted execution.checkpointing.interval (-D) wins over the
// interval given here, and execution.checkpointing.mode over the mode.
func (e *Environment) EnableCheckpointing(interval time.Duration, mode CheckpointingMode) *Environment {
	if interval < 10*time.Millisecond {
		e.mistake("checkpoint interval %v is below 10 ms", interval)
	} else {
		set(e, config.CheckpointInterval, interval)
	}
	if err := config.ValidateKeys(config.Configuration{config.CheckpointMode.Key: string(mode)}); err != nil {
		e.mistake("checkpointing mode %q: give stream.ExactlyOnce or stream.AtLeastOnce", mode)
		return e
	}
	return set(e, config.CheckpointMode, string(mode))
}

// SetMaxConcurrentCheckpoints lets up to n checkpoints be under way at a time: with more than 1, the default, the next begins at its
// interval though the one before takes longer, and one that completes ends those before it that have not. Savepoints do not wait for them. It
// is not for unaligned checkpoints, and has no effect with execution.checkpointing.min-pause. A submitted
// execution.checkpointing.max-concurrent-checkpoints wins.
// Source: Flink CheckpointConfig.setMaxConcurrentCheckpoints.
func (e *Environment) SetMaxConcurrentCheckpoints(n int) *Environment {
	if n < 1 {
		e.mistake("%d concurrent checkpoints: give 1 at least", n)
		return e
	}
	config.CheckpointsAtOnce.Set(e.prog, n)
	return e
}

// EnableUnalignedCheckpoints lets the barriers of checkpoints overtake the records that wait between tasks, so that a checkpoint is
// complete in a short time under backpressure too; those records become part of it. It costs what it writes more, and is best with
// SetAlignedCheckpointTimeout. Savepoints are aligned in any case, and so are barriers on edges that are forward, rescale or broadcast.
// A submitted execution.checkpointing.unaligned.enabled wins. It needs ExactlyOnce; BATCH ignores it.
// Source: Flink CheckpointConfig.enableUnalignedCheckpoints.
func (e *Environment) EnableUnalignedCheckpoints(enabled bool) *Environment {
	config.Unaligned.Set(e.prog, enabled)
	return e
}

// SetAlignedCheckpointTimeout lets the barriers of unaligned checkpoints begin as aligned ones, which overtake only when the checkpoint is
// older than d: without backpressure nothing more is written than for aligned checkpoints. 0, the default, lets them overtake at once. A
// submitted execution.checkpointing.aligned-checkpoint-timeout wins.
func (e *Environment) SetAlignedCheckpointTimeout(d time.Duration) *Environment {
	if d < 0 {
		e.mistake("aligned checkpoint timeout %v is negative", d)
		return e
	}
	config.AlignedTimeout.Set(e.prog, d)
	return e
}

// checkUnaligned finds what speaks against unaligned checkpoints.
func (e *Environment) checkUnaligned(c config.Configuration) error {
	if err := config.CheckUnaligned(c); err != nil {
		return err
	}
	if !config.UnalignedCheckpoints(c) || config.UnalignedForced.Value(c) || e.mode(c) == graph.Batch {
		return nil
	}
	for _, n := range e.g.Nodes {
		for _, in := range n.In {
			if in.Partitioner == graph.Custom {
				return fmt.Errorf("%s: %s = true, and records go to %s by a partition function (PartitionCustom): at another parallelism those that a checkpoint found "+
					"under way would be dealt out anew by it, which is right only if it says the same for the same record; if it does, set %s = true",
					n.CallSite, config.Unaligned.Key, n.Name, config.UnalignedForced.Key)
			}
		}
	}
	return nil
}

// RuntimeMode is how a job is run (execution.runtime-mode).
type RuntimeMode string

const (
	// Streaming runs all of the job at once, for sources of any kind; results are updated as records come. The default.
	Streaming RuntimeMode = "streaming"
	// Batch runs a job with bounded sources stage by stage: what a stage emits is written to disk, and read by the next when it is complete.
	// Keyed operators get their input sorted by key and emit final results only; no record is late; a stage that fails is run again
	// without those before it. There are no checkpoints: sinks commit at the end of their stage.
	Batch RuntimeMode = "batch"
	// Automatic is Batch when all sources are bounded, and Streaming else.
	Automatic RuntimeMode = "automatic"
)

// SetRuntimeMode sets how the job is run. A submitted execution.runtime-mode (-D) wins, and is the better place: the same program runs in
// either mode, with the same final results.
func (e *Environment) SetRuntimeMode(mode RuntimeMode) *Environment {
	return e.Set(config.RuntimeMode.Key, string(mode))
}

// mode is the mode that the job is run in.
func (e *Environment) mode(c config.Configuration) graph.Mode {
	switch RuntimeMode(config.RuntimeMode.Value(c)) {
	case Batch:
		return graph.Batch
	case Automatic:
		for _, n := range e.g.Nodes {
			if n.Source && !n.Bounded {
				return graph.Streaming
			}
		}
		return graph.Batch
	}
	return graph.Streaming
}

// SetParallelism sets the parallelism of operators that set none, 32768 at most. A submitted one (-p) wins.
func (e *Environment) SetParallelism(n int) *Environment {
	if !e.parallelism(n) {
		return e
	}
	return set(e, config.Parallelism, n)
}

// parallelism reports whether n can be one, and notes the mistake when it cannot.
func (e *Environment) parallelism(n int) bool {
	switch {
	case n < 1:
		e.mistake("parallelism %d is not positive", n)
	case n > maxKeyGroups:
		e.mistake("parallelism %d is above %d, the greatest", n, maxKeyGroups)
	}
	return n >= 1 && n <= maxKeyGroups
}

// SetMaxParallelism sets the number of key groups of operators that set none.
func (e *Environment) SetMaxParallelism(n int) *Environment {
	if n < 1 || n > maxKeyGroups {
		e.mistake("max parallelism %d is not between 1 and %d", n, maxKeyGroups)
		return e
	}
	return set(e, config.MaxParallelism, n)
}

// DisableOperatorChaining gives every operator a task of its own. A submitted pipeline.operator-chaining.enabled wins.
func (e *Environment) DisableOperatorChaining() *Environment {
	return set(e, config.OperatorChaining, false)
}

// SetBufferTimeout bounds how long a record may wait in an output buffer for others: 0 sends each record at once, negative only full
// buffers. The default is 100 ms; a submitted execution.buffer-timeout.interval wins.
func (e *Environment) SetBufferTimeout(d time.Duration) *Environment {
	if d < 0 {
		d = -time.Millisecond
	}
	if d > 0 && d < time.Millisecond {
		e.mistake("buffer time-out %v is below a millisecond; 0 sends each record at once", d)
		return e
	}
	return set(e, config.BufferTimeout, d)
}

// Set sets a configuration value for the job, under Flink's key; a submitted value wins. Unknown keys are mistakes.
func (e *Environment) Set(key, value string) *Environment {
	if err := config.ValidateKeys(config.Configuration{key: value}, config.Passthrough()...); err != nil {
		e.mistake("%v", err)
		return e
	}
	e.prog[key] = value
	return e
}

// set is Set for an option: a value that the option cannot have is a mistake, too, since reading it would give the default.
func set[T any](e *Environment, o *config.Option[T], v T) *Environment {
	c := config.Configuration{}
	o.Set(c, v)
	return e.Set(o.Key, c[o.Key])
}

// Config is the job's effective value of a configuration key; ok is false when neither the submission nor the program set it.
func (e *Environment) Config(key string) (value string, ok bool) {
	value, ok = e.effective()[key]
	return value, ok
}

func (e *Environment) effective() config.Configuration {
	c := e.prog.Clone()
	if c == nil {
		c = config.Configuration{}
	}
	for k, v := range e.conf {
		c[k] = v
	}
	return c
}

// mistake is what is wrong with a user's call. A type that cannot be encoded is told once, with the other places where it is used.
type mistake struct {
	site, text string
	unfit      string // of a type
	also       []string
}

func (m *mistake) Error() string {
	s := m.site + ": " + m.text
	if len(m.also) > 0 {
		s += " (also at " + strings.Join(m.also, ", ") + ")"
	}
	return s
}

// mistake records an error at the user's call.
func (e *Environment) mistake(format string, args ...any) {
	if e == nil {
		noEnvironment()
	}
	m := &mistake{site: callSite(), text: fmt.Sprintf(format, args...)}
	for _, a := range args {
		var unfit *serde.TypeError
		if err, ok := a.(error); ok && errors.As(err, &unfit) {
			m.unfit = unfit.Error()
		}
	}
	if at := slices.IndexFunc(e.wrong, func(o *mistake) bool { return m.unfit != "" && o.unfit == m.unfit }); at >= 0 {
		if o := e.wrong[at]; m.site != o.site && !slices.Contains(o.also, m.site) {
			o.also = append(o.also, m.site)
		}
		return
	}
	e.wrong = append(e.wrong, m)
}

// mistakes are all that were recorded.
func (e *Environment) mistakes() error {
	var all []error
	for _, m := range e.wrong {
		all = append(all, m)
	}
	return errors.Join(all...)
}

// callSite is file:line of the first caller outside of this package and those below it.
func callSite() string {
	site, _ := caller()
	return site
}

// caller is the callSite with the function of this package that is called there.
func caller() (site, method string) {
	var pcs [32]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	const ours = "github.com/thalweg/thalweg/stream"
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, ours+".") && !strings.HasPrefix(f.Function, ours+"/") || strings.HasSuffix(f.File, "_test.go") { // streamtest makes graphs, too
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line), method
		}
		if !more {
			return "?", method
		}
		method = strings.ReplaceAll(f.Function, "[...]", "")
		method = method[strings.LastIndexByte(method, '.')+1:]
	}
}

func (e *Environment) add(n *graph.Node) *graph.Node {
	e.open()
	n.CallSite = callSite()
	e.g.Nodes = append(e.g.Nodes, n)
	return n
}

// open panics for an Environment that takes no more, for which program recovers.
func (e *Environment) open() {
	switch {
	case e == nil:
		noEnvironment()
	case e.built:
		site, _ := caller()
		panic(errNoEnvironment{fmt.Errorf("%s: the stream belongs to an environment whose program is built already: make it in this call of the function that builds the program", site)})
	}
}

// translate checks the graph and chains it.
func (e *Environment) translate() (*graph.Program, error) {
	e.built = true
	c := e.effective()
	o := graph.Options{
		Parallelism: config.Parallelism.Value(c), MaxParallelism: config.MaxParallelism.Value(c), Chaining: config.OperatorChaining.Value(c),
		ChainAcross: config.ChainAcross.Value(c), RequireUIDs: !config.GenerateUIDs.Value(c),
		Mode: e.mode(c), Protocol: version.Protocol, SDK: version.Version, Config: c, DefaultMax: state.DefaultMaxParallelism,
	}
	if len(e.wrong) > 0 {
		return nil, errors.Join(e.mistakes(), graph.Check(&e.g, o))
	}
	e.g.Name = e.name
	if n := config.PipelineName.Value(c); n != "" {
		e.g.Name = n
	}
	sinks := false
	for _, n := range e.g.Nodes {
		sinks = sinks || n.OutImpl == nil
	}
	if len(e.g.Nodes) > 0 && !sinks {
		return nil, errors.New(strings.Join(append([]string{"the program has no sink: nothing would come of it; add SinkTo or Print" + e.ends()}, e.forgotten()...), "\n"))
	}
	if err := e.checkUnaligned(c); err != nil {
		return nil, err
	}
	p, err := graph.Translate(&e.g, o)
	if err == nil {
		p.Graph.Warnings = append(p.Graph.Warnings, e.forgotten()...)
	}
	return p, err
}

// ends says where the streams begin that nobody reads.
func (e *Environment) ends() string {
	read := map[*graph.Node]bool{}
	for _, n := range e.g.Nodes {
		for _, in := range n.In {
			read[in.From] = true
		}
	}
	var at []string
	for _, n := range e.g.Nodes {
		if !read[n] {
			at = append(at, fmt.Sprintf("%s (%s)", n.CallSite, n.Name))
		}
	}
	return ", as to what is made at " + strings.Join(at, ", ")
}

// FromSource adds a source; name is not empty. Its records get their event time from the watermark strategy's function, or keep the source's own.
func (e *Environment) FromSource[T any](src connector.Source[T], wm WatermarkStrategy[T], name string) DataStreamSource[T] {
	if name == "" {
		e.mistake("FromSource: the name is empty")
	}
	e.strategy(fmt.Sprintf("source %q: ", name), wm.text, wm.errs)
	if !e.source(src, name) {
		return output[T](e, e.add(&graph.Node{Kind: "source", Name: "Source: " + name, Source: true}))
	}
	return output[T](e, e.add(&graph.Node{Kind: "source", Name: "Source: " + name, Source: true, Stateful: true, Coordinated: true,
		Bounded: src.Boundedness() == connector.Bounded, Detail: wm.text,
		Impl: operator.Source(src, wm.w), Coordinator: operator.SourceCoordinator(src, wm.w)}))
}

// source notes the mistakes of a source, and reports whether there is one.
func (e *Environment) source(src any, name string) bool {
	if operator.IsNil(src) {
		e.need(false, "the source")
		return false
	}
	e.validate(fmt.Sprintf("source %q", name), src)
	return true
}

// FromCollection adds a bounded source of the given elements. It has parallelism 1.
func (e *Environment) FromCollection[T any](elements ...T) DataStreamSource[T] {
	src := &collection[T]{elements: elements}
	s := e.FromSource[T](src, NoWatermarks[T](), "Collection Source")
	s.f.node.Parallelism = 1
	s.f.node.CallSite = callSite()
	return s
}

// output completes a node whose records have type T.
func output[T any](e *Environment, n *graph.Node) SingleOutputStreamOperator[T] {
	t, err := operator.TypeOf[T]()
	return SingleOutputStreamOperator[T]{DataStream[T]{e.complete(n, t, err)}}
}

func (e *Environment) complete(n *graph.Node, t operator.Type, err error) *flow {
	if err != nil {
		e.mistake("%s: %v", n.Name, err)
	} else {
		n.OutImpl, n.OutType = t, t.Name()
	}
	return &flow{e: e, ins: []upstream{{node: n}}, node: n}
}
