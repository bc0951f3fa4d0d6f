package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Chaining says whether an operator may share a task with its neighbours.
type Chaining int

const (
	ChainAlways Chaining = iota
	ChainHead            // starts a chain: not chained to what precedes it
	ChainNever
)

// Node is one operation of a StreamGraph.
type Node struct {
	Kind, Name, UID, Detail, CallSite string
	Description                       string // the user's own
	Parallelism                       int    // 0 for the job's default
	MaxParallelism                    int    // 0 for the job's default
	Stateful, Keyed                   bool
	Source, Bounded, Coordinated      bool
	OutType, KeyType                  string
	Chaining                          Chaining
	SlotSharingGroup                  string
	In                                []Edge
	// Impl makes the operator (an operator.Factory); OutImpl is its record type (an operator.Type, nil for sinks). Coordinator is
	// its half in the coordinator process, nil for none.
	Impl, OutImpl, Coordinator any
	// Side holds the record types (operator.Type) of the side outputs that are read, by tag.
	Side map[string]any
	// Late names the record types of the side outputs that late records are sent to, by tag.
	Late map[string]string

	maxDerived bool // Translate derived MaxParallelism
}

// KindWatermarks is the Kind of nodes that give their records new event times, as sources do.
const KindWatermarks = "watermarks"

// TimesFrom is the call site of the one node that gives the records of n's inputs their event times; "" for several.
func (n *Node) TimesFrom() string {
	at := ""
	seen := map[*Node]bool{n: true}
	for todo := []*Node{n}; len(todo) > 0; todo = todo[1:] {
		for _, e := range todo[0].In {
			switch from := e.From; {
			case seen[from]:
			case !from.Source && from.Kind != KindWatermarks:
				todo = append(todo, from)
			case at != "":
				return ""
			default:
				at = from.CallSite
			}
			seen[e.From] = true
		}
	}
	return at
}

// Edge is one input of a node. Partitioner "" is Forward where the parallelism of both ends is the same, and Rebalance else.
type Edge struct {
	From        *Node
	Tag         string // of From's side output; "" for its main one
	Input       int
	Partitioner Partitioner
	Keyer       any // operator.Keyer of the record type, for Hash; operator.CustomPartitioner, for Custom
}

// Type is the record type (an operator.Type) of the edge.
func (e Edge) Type() any {
	if e.Tag != "" {
		return e.From.Side[e.Tag]
	}
	return e.From.OutImpl
}

// StreamGraph is what a program's calls built, in call order (which is topological).
type StreamGraph struct {
	Name  string
	Nodes []*Node
}

// Program is a translated StreamGraph: the JobGraph and the in-process halves of its parts.
type Program struct {
	Graph *JobGraph
	// Heads holds each vertex's chain.
	Heads map[VertexID]*ChainNode
	// Nodes finds operators by id.
	Nodes map[OperatorID]*Node
}

// ChainNode is one operator of a chain with where its records go.
type ChainNode struct {
	ID      OperatorID
	Node    *Node
	Tag     string       // of the side output of the operator before it that it takes; "" for the main one
	Index   int          // position in Vertex.Operators
	Chained []*ChainNode // direct calls
	Outputs []NetworkOut // exchanges
}

// NetworkOut is one exchange that an operator writes to.
type NetworkOut struct {
	Index       int // into Vertex.Outputs
	Tag         string
	Partitioner Partitioner
	Keyer       any
}

// Options are the parts of a configuration that translation needs.
type Options struct {
	Parallelism    int
	MaxParallelism int // <= 0 derives it
	Chaining       bool
	// ChainAcross chains operators with different max parallelism, which is then that of the first.
	ChainAcross bool
	// RequireUIDs makes an operator without UID a mistake.
	RequireUIDs bool
	Mode        Mode // Batch makes the edges between vertices blocking ones
	Protocol    int
	SDK         string
	Config      map[string]string
	// DefaultMax derives a max parallelism from a parallelism (state.DefaultMaxParallelism; graph imports nothing of the project).
	DefaultMax func(parallelism int) int
}

// Translate checks g and chains its operators into a JobGraph. All mistakes are reported at once.
func Translate(g *StreamGraph, o Options) (*Program, error) {
	t := checked(g, o)
	if len(t.errs) > 0 {
		return nil, errors.Join(t.errs...)
	}
	return t.build(g)
}

// Check tells the mistakes of a graph that is not to be translated, since others are known. It fills in g's defaults.
func Check(g *StreamGraph, o Options) error {
	if len(g.Nodes) == 0 {
		return nil
	}
	return errors.Join(checked(g, o).errs...)
}

func checked(g *StreamGraph, o Options) *translation {
	t := &translation{o: o, ids: map[*Node]OperatorID{}, head: map[*Node]*Node{}, chain: map[*Node]*ChainNode{}, outs: map[*Node][]*Node{}, keys: map[VertexID][]any{}}
	for _, n := range g.Nodes {
		t.resolve(n)
	}
	t.check(g)
	return t
}

type translation struct {
	o     Options
	ids   map[*Node]OperatorID
	head  map[*Node]*Node // node -> head of its chain
	chain map[*Node]*ChainNode
	outs  map[*Node][]*Node
	apart map[*Node]bool     // never chained to what precedes it
	keys  map[VertexID][]any // identity of the Keyer of each output
	errs  []error
	warns []string
}

func (t *translation) fail(n *Node, format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf("%s: %s: %s", n.CallSite, n.Name, fmt.Sprintf(format, args...)))
}

// resolve fills in the defaults of a node and of its edges.
func (t *translation) resolve(n *Node) {
	if n.Parallelism == 0 {
		n.Parallelism = t.o.Parallelism
	}
	if n.MaxParallelism == 0 {
		if n.MaxParallelism = t.o.MaxParallelism; n.MaxParallelism <= 0 {
			n.MaxParallelism, n.maxDerived = t.o.DefaultMax(n.Parallelism), true
		}
	}
	if n.SlotSharingGroup == "" {
		n.SlotSharingGroup = inherited(n)
	}
	for i := range n.In {
		e := &n.In[i]
		t.outs[e.From] = append(t.outs[e.From], n)
		if e.Partitioner == "" {
			e.Partitioner = Rebalance
			if e.From.Parallelism == n.Parallelism {
				e.Partitioner = Forward
			}
		}
	}
}

// inherited is the slot sharing group of a node that sets none: that of its inputs when they share one. Source: Flink
// StreamGraphGenerator.determineSlotSharingGroup.
func inherited(n *Node) string {
	group := ""
	for _, e := range n.In {
		if group != "" && e.From.SlotSharingGroup != group {
			return "default"
		}
		group = e.From.SlotSharingGroup
	}
	if group == "" {
		return "default"
	}
	return group
}

func (t *translation) check(g *StreamGraph) {
	if len(g.Nodes) == 0 {
		t.errs = append(t.errs, errors.New("the program builds no operators: add a source and a sink"))
	}
	uids := map[string]*Node{}
	for i, n := range g.Nodes {
		if n.UID != "" {
			if other, dup := uids[n.UID]; dup {
				t.fail(n, "UID %q is already used at %s; UIDs are unique in a job", n.UID, other.CallSite)
			}
			uids[n.UID] = n
		} else if t.o.RequireUIDs {
			t.fail(n, "the operator has no UID, and pipeline.auto-generate-uids is false; add .UID(...)")
		} else if n.Stateful && t.o.Mode != Batch { // BATCH has no savepoints
			t.warns = append(t.warns, fmt.Sprintf("%s: %s keeps state but has no UID: a changed program may not find it in a savepoint; add .UID(...)", n.CallSite, n.Name))
		}
		if t.o.Mode == Batch && n.Source && !n.Bounded {
			t.fail(n, "the source is unbounded, and BATCH (execution.runtime-mode) needs an end: bound the source, or run in STREAMING or AUTOMATIC")
		}
		if n.Parallelism < 1 {
			t.fail(n, "parallelism %d is not positive", n.Parallelism)
		}
		if n.MaxParallelism < n.Parallelism || n.MaxParallelism > 1<<15 {
			t.fail(n, "max parallelism %d must be between the parallelism (%d) and 32768", n.MaxParallelism, n.Parallelism)
		}
		for _, e := range n.In {
			if e.Partitioner == Forward && e.From.Parallelism != n.Parallelism {
				t.fail(n, "forward needs the same parallelism at both ends, %s has %d and this %d", e.From.Name, e.From.Parallelism, n.Parallelism)
			}
		}
		t.ids[n] = t.operatorID(i, n)
	}
}

// operatorID hashes the UID, or the position and inputs of a node without one.
func (t *translation) operatorID(position int, n *Node) OperatorID {
	if n.UID != "" {
		return OperatorIDOf(n.UID)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "node:%d:%s", position, n.Kind)
	for _, e := range n.In {
		fmt.Fprintf(&s, ":%s:%d", t.ids[e.From], e.Input)
		if e.Tag != "" {
			s.WriteString(":" + e.Tag)
		}
	}
	return hashID(s.String())
}

// OperatorIDOf is the id of the operator with a UID, in every job.
func OperatorIDOf(uid string) OperatorID { return hashID("uid:" + uid) }

func hashID(s string) (id OperatorID) {
	sum := sha256.Sum256([]byte(s))
	copy(id.ID[:], sum[:])
	return id
}

func (t *translation) chainable(n *Node) bool {
	if !t.o.Chaining || len(n.In) != 1 || n.Chaining != ChainAlways || t.apart[n] {
		return false
	}
	e := n.In[0]
	if t.o.Mode == Batch && e.From.Kind == "cache" { // its records go to disk before anybody gets them
		return false
	}
	return e.Partitioner == Forward && e.From.Chaining != ChainNever && e.From.SlotSharingGroup == n.SlotSharingGroup &&
		(t.o.ChainAcross || e.From.MaxParallelism == n.MaxParallelism)
}

// setApart gives sinks that commit a task of their own, in BATCH, when the chain that they would be in has other outputs. Once a sink's
// commits are prepared its task is not run again but for them; what the chain had written elsewhere would be lost with its worker.
func (t *translation) setApart(g *StreamGraph) {
	head := map[*Node]*Node{}
	writes := map[*Node]bool{} // heads of chains with outputs to other tasks
	for _, n := range g.Nodes {
		if head[n] = n; t.chainable(n) {
			head[n] = head[n.In[0].From]
			continue
		}
		for _, e := range n.In {
			writes[head[e.From]] = true
		}
	}
	t.apart = map[*Node]bool{}
	for _, n := range g.Nodes {
		if n.Kind == "sink" && n.Stateful && writes[head[n]] && head[n] != n {
			t.apart[n] = true
		}
	}
}

func (t *translation) build(g *StreamGraph) (*Program, error) {
	if t.o.Mode == Batch {
		t.setApart(g)
	}
	jg := &JobGraph{Name: g.Name, Mode: t.o.Mode, Protocol: t.o.Protocol, SDK: t.o.SDK, Config: t.o.Config, Warnings: t.warns}
	p := &Program{Graph: jg, Heads: map[VertexID]*ChainNode{}, Nodes: map[OperatorID]*Node{}}
	index := map[*Node]int{} // head -> index into jg.Vertices
	exchange := Pipelined
	if t.o.Mode == Batch {
		exchange = Blocking
	}
	for _, n := range g.Nodes {
		c := &ChainNode{ID: t.ids[n], Node: n}
		t.chain[n] = c
		p.Nodes[c.ID] = n
		op := Operator{ID: c.ID, UID: n.UID, Name: n.Name, Kind: n.Kind, Stateful: n.Stateful, Keyed: n.Keyed, Source: n.Source,
			Bounded: n.Bounded, Coordinate: n.Coordinated, OutType: n.OutType, KeyType: n.KeyType, CallSite: n.CallSite, Detail: n.Detail, Layout: layout(n), Description: n.Description}
		if t.chainable(n) {
			from := n.In[0].From
			t.head[n] = t.head[from]
			v := &jg.Vertices[index[t.head[n]]]
			c.Index = len(v.Operators)
			op.ChainedTo, op.ChainedTag = t.chain[from].Index, n.In[0].Tag
			v.Operators = append(v.Operators, op)
			if n.MaxParallelism == v.MaxParallelism {
				v.MaxDerived = v.MaxDerived && n.maxDerived // set for one is set for the chain
			}
			c.Tag = n.In[0].Tag
			t.chain[from].Chained = append(t.chain[from].Chained, c)
			continue
		}
		t.head[n] = n
		id := VertexID(c.ID)
		index[n] = len(jg.Vertices)
		p.Heads[id] = c
		v := Vertex{ID: id, Operators: []Operator{op}, Parallelism: n.Parallelism, MaxParallelism: n.MaxParallelism, MaxDerived: n.maxDerived, SlotSharingGroup: n.SlotSharingGroup}
		for _, e := range n.In {
			from := &jg.Vertices[index[t.head[e.From]]]
			out := len(from.Outputs)
			o := Output{To: id, From: t.ids[e.From], Tag: e.Tag, Partitioner: e.Partitioner, Exchange: exchange}
			key := identity(e.Keyer)
			if exchange == Blocking && (e.Keyer == nil || key != nil) {
				o.Same = t.same(jg, from, o, key, n)
			}
			t.keys[from.ID] = append(t.keys[from.ID], key)
			from.Outputs = append(from.Outputs, o)
			v.Inputs = append(v.Inputs, Input{From: from.ID, FromOutput: out, Input: e.Input, Partitioner: e.Partitioner, Exchange: exchange})
			fc := t.chain[e.From]
			if o.Same == 0 {
				fc.Outputs = append(fc.Outputs, NetworkOut{Index: out, Tag: e.Tag, Partitioner: e.Partitioner, Keyer: e.Keyer})
			}
		}
		jg.Vertices = append(jg.Vertices, v)
	}
	for i := range jg.Vertices {
		jg.Vertices[i].Name = chainName(jg.Vertices[i].Operators)
	}
	var err error
	jg.Fingerprint, err = fingerprint(jg)
	return p, err
}

// chainName is "Source: orders -> Map -> Filter".
func chainName(ops []Operator) string {
	names := make([]string, len(ops))
	for i := range ops {
		names[i] = ops[i].Name
	}
	return strings.Join(names, " -> ")
}

// identity is what edges have in common whose Keyers compute the same keys, nil when it is not known.
func identity(keyer any) any {
	if k, ok := keyer.(interface{ Identity() any }); ok {
		return k.Identity()
	}
	return nil
}

// same finds an output of v that deals the same records out in the same way to as many consumers as o, which goes to n; it returns what
// Output.Same is then. Source: Flink's StreamingJobGraphGenerator, which lets consumers with equal partitioners share a result.
func (t *translation) same(g *JobGraph, v *Vertex, o Output, key any, n *Node) int {
	for i, other := range v.Outputs {
		to := g.Vertex(other.To)
		if to != nil && other.Same == 0 && other.From == o.From && other.Tag == o.Tag && other.Partitioner == o.Partitioner && t.keys[v.ID][i] == key &&
			to.Parallelism == n.Parallelism && (key == nil || to.MaxParallelism == n.MaxParallelism) {
			return i + 1
		}
	}
	return 0
}

// The layouts of sources and sinks, whose state is the connector's.
const (
	LayoutSource = "source"
	LayoutSink   = "sink"
)

// layout is the layout of a node's state; "" when it has none.
func layout(n *Node) string {
	l, _ := n.Impl.(interface{ Layout() string })
	switch {
	case l != nil:
		return l.Layout()
	case n.Source:
		return LayoutSource
	case n.Kind == "sink":
		return LayoutSink
	}
	return ""
}

// fingerprint is the SHA-256 of everything of g but its configuration, the call sites and the layouts, which follow from the rest.
func fingerprint(g *JobGraph) (string, error) {
	c := *g
	c.Config, c.Fingerprint, c.Warnings = nil, "", nil
	c.Vertices = append([]Vertex(nil), g.Vertices...)
	for i := range c.Vertices {
		ops := append([]Operator(nil), c.Vertices[i].Operators...)
		for j := range ops {
			ops[j].CallSite, ops[j].Layout = "", ""
		}
		c.Vertices[i].Operators = ops
	}
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("graph: fingerprint: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
