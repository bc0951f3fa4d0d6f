package graph

import (
	"fmt"
	"strings"
	"testing"
)

func batchOptions() Options {
	return Options{Parallelism: 2, Chaining: true, Mode: Batch, DefaultMax: func(int) int { return 128 }}
}

// In BATCH every edge between tasks is a blocking one, so each vertex is a stage; in STREAMING there is one stage for what is connected.
func TestStages(t *testing.T) {
	build := func() *StreamGraph {
		a := &Node{Kind: "source", Name: "a", Source: true, Bounded: true}
		b := &Node{Kind: "source", Name: "b", Source: true, Bounded: true}
		m := &Node{Kind: "map", Name: "m", In: []Edge{{From: a}}}
		j := &Node{Kind: "join", Name: "j", In: []Edge{{From: m, Partitioner: Hash}, {From: b, Partitioner: Hash, Input: 1}}}
		s := &Node{Kind: "sink", Name: "s", In: []Edge{{From: j}}}
		alone := &Node{Kind: "source", Name: "alone", Source: true, Bounded: true}
		return &StreamGraph{Name: "job", Nodes: []*Node{a, b, m, j, s, alone}}
	}
	for mode, want := range map[Mode]string{Batch: "[[0] [1] [2] [3]]", Streaming: "[[0 1 2] [3]]"} {
		o := batchOptions()
		o.Mode = mode
		p, err := Translate(build(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Graph.Stages()); got != want {
			t.Errorf("%s: stages %s, want %s", mode.Name(), got, want)
		}
		for _, v := range p.Graph.Vertices {
			for _, in := range v.Inputs {
				out := p.Graph.Vertex(in.From).Outputs[in.FromOutput]
				if blocking := mode == Batch; (in.Exchange == Blocking) != blocking || out.Exchange != in.Exchange {
					t.Errorf("%s: edge into %s is %q and %q", mode.Name(), v.Name, out.Exchange, in.Exchange)
				}
			}
		}
	}
}

// An unbounded source cannot run in BATCH; the error names it, where it is, and what to do.
func TestUnboundedSourceInBatch(t *testing.T) {
	live := &Node{Kind: "source", Name: "Source: live", Source: true, CallSite: "main.go:12"}
	file := &Node{Kind: "source", Name: "Source: file", Source: true, Bounded: true}
	_, err := Translate(&StreamGraph{Name: "job", Nodes: []*Node{live, file}}, batchOptions())
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"main.go:12", "Source: live", "unbounded", "execution.runtime-mode", "AUTOMATIC"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "file") {
		t.Errorf("%q names the bounded source", err)
	}
}

// A sink that commits has, in BATCH, a task whose only output it is.
func TestCommittingSinkOfASharedChain(t *testing.T) {
	build := func(stateful bool) *StreamGraph {
		a := &Node{Kind: "source", Name: "a", Source: true, Bounded: true}
		s := &Node{Kind: "sink", Name: "s", Stateful: stateful, In: []Edge{{From: a}}}
		s2 := &Node{Kind: "sink", Name: "s2", Stateful: stateful, In: []Edge{{From: a}}}
		k := &Node{Kind: "reduce", Name: "k", In: []Edge{{From: a, Partitioner: Hash}}}
		return &StreamGraph{Name: "job", Nodes: []*Node{a, s, s2, k, {Kind: "sink", Name: "s3", Stateful: stateful, In: []Edge{{From: k}}}}}
	}
	for stateful, want := range map[bool]string{true: "[a s s2 k -> s3]", false: "[a -> s -> s2 k -> s3]"} {
		p, err := Translate(build(stateful), batchOptions())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range p.Graph.Vertices {
			names = append(names, v.Name)
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("committing %t: tasks %s, want %s", stateful, got, want)
		}
	}
	o := batchOptions()
	o.Mode = Streaming
	p, err := Translate(build(true), o)
	if err != nil || len(p.Graph.Vertices) != 2 {
		t.Errorf("STREAMING: %v, %v", p, err)
	}
}

// An operator without UID loses its state between two versions of a program, but where there are no savepoints there is nothing to lose.
func TestMissingUIDsMatterToSavepointsOnly(t *testing.T) {
	for mode, want := range map[Mode]int{Batch: 0, Streaming: 1} {
		o := batchOptions()
		o.Mode = mode
		p, err := Translate(&StreamGraph{Name: "job", Nodes: []*Node{{Kind: "source", Name: "a", Source: true, Bounded: true, Stateful: true}}}, o)
		if err != nil || len(p.Graph.Warnings) != want {
			t.Errorf("%s: %v, %v; want %d warnings", mode.Name(), p.Graph.Warnings, err, want)
		}
		if tree := p.Graph.Tree(); !strings.HasPrefix(tree, "job: "+mode.Name()+", ") || p.Graph.Plan().RuntimeMode != mode.Name() {
			t.Errorf("%s: %q", mode.Name(), tree)
		}
	}
}
