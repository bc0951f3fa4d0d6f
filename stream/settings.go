package stream

import "github.com/thalweg/thalweg/runtime/graph"

// maxKeyGroups is the greatest max parallelism.
const maxKeyGroups = 1 << 15

// settings are what every operator has: those of sources, of what they are followed by, and of sinks.
type settings struct {
	env  *Environment
	node *graph.Node
	// single says that it runs in one subtask, for good.
	single bool
}

func (s settings) parallelism(n int) {
	if s.env.parallelism(n) && s.allows("SetParallelism", n) {
		s.node.Parallelism = n
	}
}

// allows notes a mistake when n is too many for an operator that runs in one subtask.
func (s settings) allows(method string, n int) bool {
	if s.single && n > 1 {
		s.env.mistake("%s(%d): windows over all records (WindowAll, CountWindowAll) run in one subtask: their parallelism is always 1; KeyBy(...).Window(...) runs in many", method, n)
		return false
	}
	return true
}

func (s settings) maxParallelism(n int) {
	if n < 1 || n > maxKeyGroups {
		s.env.mistake("max parallelism %d is not between 1 and %d", n, maxKeyGroups)
		return
	}
	if s.allows("SetMaxParallelism", n) {
		s.node.MaxParallelism = n
	}
}

// name sets the name, with what stands before it.
func (s settings) name(prefix, name string) {
	if name == "" {
		s.env.mistake("Name: the name is empty")
		return
	}
	s.node.Name = prefix + name
}

func (s settings) uid(uid string) {
	if uid == "" {
		s.env.mistake("UID: the uid is empty: leave the call out for one that is made from the graph")
		return
	}
	s.node.UID = uid
}

func (s settings) group(name string) {
	if name == "" {
		s.env.mistake("SlotSharingGroup: the group has no name")
		return
	}
	s.node.SlotSharingGroup = name
}

// settingsOf is what a stream made by env has.
func settingsOf(env *Environment, n *graph.Node) settings {
	if n == nil {
		noEnvironment()
	}
	env.open()
	return settings{env: env, node: n}
}

func settingsOfStream(f *flow) settings {
	if f == nil {
		noEnvironment()
	}
	s := settingsOf(f.e, f.node)
	s.single = f.single
	return s
}

// Name sets the operator's name, which is not empty, as shown in plans, logs and metrics.
func (s SingleOutputStreamOperator[T]) Name(name string) SingleOutputStreamOperator[T] {
	set, prefix := settingsOfStream(s.f), ""
	if set.node.Source {
		prefix = "Source: "
	}
	set.name(prefix, name)
	return s
}

// UID sets the operator's identity: state in savepoints is found by it. It must be unique in the job and stay the same over versions.
func (s SingleOutputStreamOperator[T]) UID(uid string) SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).uid(uid)
	return s
}

// SetDescription sets a text for people, shown in plans; it may be longer than a name.
func (s SingleOutputStreamOperator[T]) SetDescription(text string) SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).node.Description = text
	return s
}

// SetParallelism sets the number of subtasks, 32768 at most.
func (s SingleOutputStreamOperator[T]) SetParallelism(n int) SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).parallelism(n)
	return s
}

// SetMaxParallelism sets the number of key groups, 32768 at most: the most that the parallelism can ever be for its state.
func (s SingleOutputStreamOperator[T]) SetMaxParallelism(n int) SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).maxParallelism(n)
	return s
}

// SlotSharingGroup puts the operator, and what follows it and sets no group, into a slot sharing group: subtasks of one group may run in
// one slot, of different groups never do. A job needs as many slots as the sum over its groups of their greatest parallelism. The
// default is the group of the inputs if they share one, else "default". Operators of different groups are not chained.
func (s SingleOutputStreamOperator[T]) SlotSharingGroup(name string) SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).group(name)
	return s
}

// StartNewChain lets this operator begin a task of its own; what follows may still be chained to it.
func (s SingleOutputStreamOperator[T]) StartNewChain() SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).node.Chaining = graph.ChainHead
	return s
}

// DisableChaining gives the operator a task of its own.
func (s SingleOutputStreamOperator[T]) DisableChaining() SingleOutputStreamOperator[T] {
	settingsOfStream(s.f).node.Chaining = graph.ChainNever
	return s
}

// Name sets the sink's name.
func (s SinkOperator) Name(name string) SinkOperator {
	settingsOf(s.env, s.node).name("Sink: ", name)
	return s
}

// UID sets the sink's identity in savepoints.
func (s SinkOperator) UID(uid string) SinkOperator {
	settingsOf(s.env, s.node).uid(uid)
	return s
}

// SetDescription sets a text for people, shown in plans.
func (s SinkOperator) SetDescription(text string) SinkOperator {
	settingsOf(s.env, s.node).node.Description = text
	return s
}

// SetParallelism sets the number of subtasks.
func (s SinkOperator) SetParallelism(n int) SinkOperator {
	settingsOf(s.env, s.node).parallelism(n)
	return s
}

// SetMaxParallelism sets the most that the parallelism can be.
func (s SinkOperator) SetMaxParallelism(n int) SinkOperator {
	settingsOf(s.env, s.node).maxParallelism(n)
	return s
}

// SlotSharingGroup is that of SingleOutputStreamOperator.
func (s SinkOperator) SlotSharingGroup(name string) SinkOperator {
	settingsOf(s.env, s.node).group(name)
	return s
}

// StartNewChain gives the sink a task of its own, as DisableChaining does: nothing follows it.
func (s SinkOperator) StartNewChain() SinkOperator {
	settingsOf(s.env, s.node).node.Chaining = graph.ChainHead
	return s
}

// DisableChaining gives the sink a task of its own.
func (s SinkOperator) DisableChaining() SinkOperator {
	settingsOf(s.env, s.node).node.Chaining = graph.ChainNever
	return s
}
