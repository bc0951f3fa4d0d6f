package graph

import (
	"bytes"
	"fmt"
	"strings"
)

// Plan is a job graph in the form of Flink's plan: one node per operator, numbered from 1 in the order of the program. Fields that Flink
// does not have come after its own. Source: Flink JSONGenerator.
type Plan struct {
	Nodes []PlanNode `json:"nodes"`

	RuntimeMode string `json:"runtime_mode"` // STREAMING or BATCH
}

// PlanNode is one operator.
type PlanNode struct {
	ID           int        `json:"id"`
	Type         string     `json:"type"`
	Pact         string     `json:"pact"` // "Data Source", "Operator" or "Data Sink"
	Contents     string     `json:"contents"`
	Parallelism  int        `json:"parallelism"`
	Predecessors []PlanEdge `json:"predecessors,omitempty"`

	UID              string     `json:"uid,omitempty"`
	OperatorID       OperatorID `json:"operator_id"`
	JobVertexID      VertexID   `json:"job_vertex_id"` // of the task that it is chained into
	MaxParallelism   int        `json:"max_parallelism"`
	SlotSharingGroup string     `json:"slot_sharing_group"`
	Stateful         bool       `json:"stateful,omitempty"`
	CallSite         string     `json:"call_site,omitempty"`
}

// PlanEdge is one input of an operator.
type PlanEdge struct {
	ID           int    `json:"id"`
	ShipStrategy string `json:"ship_strategy"`
	Side         string `json:"side"` // "first", or "second" of a two-input operator
	OutputTag    string `json:"output_tag,omitempty"`
}

// Plan returns the plan of g.
func (g *JobGraph) Plan() Plan {
	p := Plan{Nodes: []PlanNode{}, RuntimeMode: g.Mode.Name()}
	number := map[OperatorID]int{}
	for _, v := range g.Vertices {
		for _, o := range v.Operators {
			number[o.ID] = len(number) + 1
		}
	}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		for j := range v.Operators {
			o := &v.Operators[j]
			n := PlanNode{ID: number[o.ID], Type: o.Name, Pact: o.pact(), Contents: o.contents(), Parallelism: v.Parallelism, UID: o.UID, OperatorID: o.ID,
				JobVertexID: v.ID, MaxParallelism: v.MaxParallelism, SlotSharingGroup: v.SlotSharingGroup, Stateful: o.Stateful, CallSite: o.CallSite}
			if j > 0 {
				n.Predecessors = []PlanEdge{{ID: number[v.Operators[o.ChainedTo].ID], ShipStrategy: string(Forward), Side: "first", OutputTag: o.ChainedTag}}
			} else {
				for _, in := range v.Inputs {
					out := g.Vertex(in.From).Outputs[in.FromOutput]
					n.Predecessors = append(n.Predecessors, PlanEdge{ID: number[out.From], ShipStrategy: string(in.Partitioner), Side: side(in.Input), OutputTag: out.Tag})
				}
			}
			p.Nodes = append(p.Nodes, n)
		}
	}
	return p
}

func side(input int) string {
	if input == 0 {
		return "first"
	}
	return "second"
}

func (o *Operator) pact() string {
	switch {
	case o.Source:
		return "Data Source"
	case o.OutType == "":
		return "Data Sink"
	}
	return "Operator"
}

func (o *Operator) contents() string {
	if o.Description != "" {
		return o.Description
	}
	return o.Name
}

// Slots is how many slots the job needs: the sum over its slot sharing groups of the greatest parallelism of each.
func (g *JobGraph) Slots() int {
	groups, n := map[string]int{}, 0
	for _, v := range g.Vertices {
		n += max(0, v.Parallelism-groups[v.SlotSharingGroup])
		groups[v.SlotSharingGroup] = max(groups[v.SlotSharingGroup], v.Parallelism)
	}
	return n
}

// Tree is the graph for people: the tasks, where each one's records come from, and the operators that are chained in it, as a tree.
func (g *JobGraph) Tree() string {
	var b bytes.Buffer
	number := map[VertexID]int{}
	ops, groups, names := 0, map[string]bool{}, map[string]int{}
	for i, v := range g.Vertices {
		for _, o := range v.Operators {
			names[o.Name]++
		}
		number[v.ID] = i + 1
		ops += len(v.Operators)
		groups[v.SlotSharingGroup] = true
	}
	fmt.Fprintf(&b, "%s: %s, %s in %s, %s\n", g.Name, g.Mode.Name(), counted(ops, "operator"), counted(len(g.Vertices), "task"), counted(g.Slots(), "slot"))
	for i := range g.Vertices {
		v := &g.Vertices[i]
		fmt.Fprintf(&b, "\n%d  parallelism %d, max parallelism %d", number[v.ID], v.Parallelism, v.MaxParallelism)
		if len(groups) > 1 {
			fmt.Fprintf(&b, ", slot sharing group %s", v.SlotSharingGroup)
		}
		b.WriteByte('\n')
		for _, in := range v.Inputs {
			from := g.Vertex(in.From)
			out := from.Outputs[in.FromOutput]
			fmt.Fprintf(&b, "   <- %s from %d", in.Partitioner, number[in.From])
			if o := from.operator(out.From); o != nil {
				fmt.Fprintf(&b, " %s", o.Name)
			}
			if out.Tag != "" {
				fmt.Fprintf(&b, ", side output %q", out.Tag)
			}
			if v.twoInputs() {
				fmt.Fprintf(&b, " (%s input)", side(in.Input))
			}
			b.WriteByte('\n')
		}
		v.tree(&b, 0, "   ", "", names)
	}
	return b.String()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (v *Vertex) operator(id OperatorID) *Operator {
	for i := range v.Operators {
		if v.Operators[i].ID == id {
			return &v.Operators[i]
		}
	}
	return nil
}

func (v *Vertex) twoInputs() bool {
	for _, in := range v.Inputs {
		if in.Input > 0 {
			return true
		}
	}
	return false
}

// tree writes operator i of the chain and what is chained to it. names counts the operators of each name: those that share one are told apart
// by the line of their call.
func (v *Vertex) tree(b *bytes.Buffer, i int, indent, branch string, names map[string]int) {
	o := &v.Operators[i]
	fmt.Fprintf(b, "%s%s%s", indent, branch, o.Name)
	if o.Description != "" {
		fmt.Fprintf(b, " - %s", o.Description)
	}
	notes := o.notes()
	if names[o.Name] > 1 && o.CallSite != "" {
		notes = append(notes, o.CallSite)
	}
	if len(notes) > 0 {
		fmt.Fprintf(b, "  (%s)", strings.Join(notes, "; "))
	}
	b.WriteByte('\n')
	var next []int
	for j := i + 1; j < len(v.Operators); j++ {
		if v.Operators[j].ChainedTo == i {
			next = append(next, j)
		}
	}
	switch branch {
	case "|- ":
		indent += "|  "
	case "`- ":
		indent += "   "
	}
	for k, j := range next {
		if k < len(next)-1 {
			v.tree(b, j, indent, "|- ", names)
		} else {
			v.tree(b, j, indent, "`- ", names)
		}
	}
}

func (o *Operator) notes() []string {
	var n []string
	if o.UID != "" {
		n = append(n, "uid "+o.UID)
	}
	if o.KeyType != "" {
		key, _, _ := strings.Cut(o.KeyType, "#")
		n = append(n, "key "+key)
	}
	if o.Detail != "" {
		n = append(n, o.Detail)
	}
	if o.ChainedTag != "" {
		n = append(n, fmt.Sprintf("side output %q", o.ChainedTag))
	}
	return n
}
