// Package graph holds the three graphs of a job: StreamGraph (what the user's calls built, one node per operation), JobGraph (chained
// operators as vertices, serialised as JSON: what a plan process hands to the JobMaster) and the identities of their parts. It is layer
// L1. The user's binary, executed again, builds the same StreamGraph; functions never leave the process: Node.Impl and Edge.Impl hold
// the in-process halves and are not serialised.
//
// Invariants: operator ids depend on UIDs, or on structure where none is given; vertices are in topological order; a JobGraph is
// immutable after Translate.
package graph

// Partitioner says how records travel along an edge.
type Partitioner string

const (
	Forward   Partitioner = "FORWARD"
	Rebalance Partitioner = "REBALANCE"
	Hash      Partitioner = "HASH"
	Broadcast Partitioner = "BROADCAST"
	Rescale   Partitioner = "RESCALE" // in turn to the consumer subtasks next to the producer's
	Shuffle   Partitioner = "SHUFFLE" // to a random subtask
	Global    Partitioner = "GLOBAL"  // all to subtask 0
	Custom    Partitioner = "CUSTOM"  // to the subtask that the user's function says
)

// Exchange says when the consumers of an edge run.
type Exchange string

const (
	Pipelined Exchange = ""         // beside the producer
	Blocking  Exchange = "BLOCKING" // after it: its output is written to disk as a whole
)

// Mode is how a job is run.
type Mode string

const (
	Streaming Mode = ""      // all of it at once, with checkpoints
	Batch     Mode = "BATCH" // stage by stage, with blocking exchanges, for bounded sources
)

// Name is the mode's name in Flink.
func (m Mode) Name() string {
	if m == Batch {
		return "BATCH"
	}
	return "STREAMING"
}

// pointwise partitioners connect each producer subtask with some consumer subtasks, the others each with all.
func (p Partitioner) pointwise() bool { return p == Forward || p == Rescale }

// Consumers are the consumer subtasks [from, to) that producer subtask i of an edge is connected with; its subpartitions are theirs in
// this order. Source: Flink EdgeManagerBuildUtil.
func (p Partitioner) Consumers(producers, consumers, i int) (from, to int) {
	if !p.pointwise() {
		return 0, consumers
	}
	if producers >= consumers { // several producers share a consumer
		c := 0
		for c+1 < consumers && (c+1)*producers/consumers <= i {
			c++
		}
		return c, c + 1
	}
	return (i*consumers + producers - 1) / producers, ((i+1)*consumers + producers - 1) / producers
}

// Producers are the producer subtasks [from, to) that consumer subtask j of an edge is connected with.
func (p Partitioner) Producers(producers, consumers, j int) (from, to int) {
	if !p.pointwise() {
		return 0, producers
	}
	if producers >= consumers {
		return j * producers / consumers, (j + 1) * producers / consumers
	}
	i := j * producers / consumers
	return i, i + 1
}

// JobGraph is the unit of submission.
type JobGraph struct {
	Name     string   `json:"name"`
	Mode     Mode     `json:"mode,omitempty"`
	Protocol int      `json:"protocol"`
	SDK      string   `json:"sdk"` // version of the SDK in the user's binary
	Vertices []Vertex `json:"vertices"`
	// Config is the job's effective configuration: the submitted one with what the program set itself (interval, state backend, …).
	Config map[string]string `json:"config"`
	// Warnings are things worth telling the user that do not stop the job (a stateful operator without UID).
	Warnings    []string `json:"warnings,omitempty"`
	Fingerprint string   `json:"fingerprint"` // hex SHA-256 over everything above but Config, call sites and layouts
}

// Vertex is a chain of operators that runs in one task per subtask.
type Vertex struct {
	ID             VertexID   `json:"id"`
	Name           string     `json:"name"` // "Source: orders -> Map -> Filter"
	Operators      []Operator `json:"operators"`
	Parallelism    int        `json:"parallelism"`
	MaxParallelism int        `json:"maxParallelism"`
	// MaxDerived: nobody set MaxParallelism, it follows from the parallelism. State that is restored may replace it with its own.
	MaxDerived       bool     `json:"maxParallelismDerived,omitempty"`
	Inputs           []Input  `json:"inputs,omitempty"`  // network inputs of the head operator
	Outputs          []Output `json:"outputs,omitempty"` // network outputs, any operator of the chain
	SlotSharingGroup string   `json:"slotSharingGroup"`
}

// Operator describes one operator of a chain.
type Operator struct {
	ID         OperatorID `json:"id"`
	UID        string     `json:"uid,omitempty"`
	Name       string     `json:"name"`
	Kind       string     `json:"kind"` // "source", "map", "window", "sink", …
	Stateful   bool       `json:"stateful,omitempty"`
	Keyed      bool       `json:"keyed,omitempty"`
	Source     bool       `json:"source,omitempty"`
	Bounded    bool       `json:"bounded,omitempty"`     // sources: ends by itself
	Coordinate bool       `json:"coordinated,omitempty"` // has a half in the coordinator process
	OutType    string     `json:"outType,omitempty"`     // Go type name with schema hash
	KeyType    string     `json:"keyType,omitempty"`
	CallSite   string     `json:"callSite,omitempty"` // file:line of the user's call
	Detail     string     `json:"detail,omitempty"`   // such as "TumblingEventTime(1m0s)"
	// Layout says what the operator's state is made of: state of another layout is not restored. "" for operators without state.
	Layout string `json:"layout,omitempty"`
	// Description is the user's own text; "" for none.
	Description string `json:"description,omitempty"`
	// ChainedTo is, in an operator that is not the head, the position of the one before it, and ChainedTag the side output that it takes.
	ChainedTo  int    `json:"chainedTo,omitempty"`
	ChainedTag string `json:"chainedTag,omitempty"`
}

// Input is one network edge into a vertex.
type Input struct {
	From        VertexID    `json:"from"`
	FromOutput  int         `json:"fromOutput"` // index into the producer's Outputs
	Input       int         `json:"input"`      // input number of the head operator (0, or 1 of a two-input operator)
	Partitioner Partitioner `json:"partitioner"`
	Exchange    Exchange    `json:"exchange,omitempty"`
}

// Output is one network edge out of a vertex.
type Output struct {
	To          VertexID    `json:"to"`
	From        OperatorID  `json:"fromOperator"`  // operator of the chain whose records it carries
	Tag         string      `json:"tag,omitempty"` // of the side output that it carries; "" for the main one
	Partitioner Partitioner `json:"partitioner"`
	Exchange    Exchange    `json:"exchange,omitempty"`
	// Same is, when it is not 0, one more than the index of the output before whose partitions this one reads: those of a blocking
	// exchange can be read by several consumers.
	Same int `json:"same,omitempty"`
}

// Partition is the index of the output whose partitions output i reads: i itself, or the one that it is the same as.
func (v *Vertex) Partition(i int) int {
	if s := v.Outputs[i].Same; s > 0 {
		return s - 1
	}
	return i
}

// Stages groups the vertices, by index, that run together: those that are connected by pipelined edges. A stage runs when what its
// blocking edges come from is finished. The stages are in topological order of their first vertices.
func (g *JobGraph) Stages() [][]int {
	index := map[VertexID]int{}
	parent := make([]int, len(g.Vertices))
	var root func(i int) int
	root = func(i int) int {
		if parent[i] != i {
			parent[i] = root(parent[i])
		}
		return parent[i]
	}
	for i := range g.Vertices {
		index[g.Vertices[i].ID], parent[i] = i, i
	}
	for i := range g.Vertices {
		for _, in := range g.Vertices[i].Inputs {
			if from, ok := index[in.From]; ok && in.Exchange == Pipelined {
				a, b := root(from), root(i)
				parent[max(a, b)] = min(a, b)
			}
		}
	}
	var stages [][]int
	at := map[int]int{}
	for i := range g.Vertices {
		s, ok := at[root(i)]
		if !ok {
			s = len(stages)
			at[root(i)] = s
			stages = append(stages, nil)
		}
		stages[s] = append(stages[s], i)
	}
	return stages
}

// Vertex returns the vertex with this id, or nil.
func (g *JobGraph) Vertex(id VertexID) *Vertex {
	for i := range g.Vertices {
		if g.Vertices[i].ID == id {
			return &g.Vertices[i]
		}
	}
	return nil
}
