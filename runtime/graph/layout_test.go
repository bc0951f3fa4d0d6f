package graph

import "testing"

type laidOut string

func (l laidOut) Layout() string { return string(l) }

// A layout is in the job graph, and no part of the fingerprint: it follows from what is.
func TestLayoutIsNoPartOfTheFingerprint(t *testing.T) {
	translate := func(impl any) *JobGraph {
		source := &Node{Kind: "source", Name: "numbers", Source: true, Bounded: true}
		window := &Node{Kind: "window", Name: "totals", UID: "totals", Stateful: true, Impl: impl, In: []Edge{{From: source}}}
		p, err := Translate(&StreamGraph{Name: "job", Nodes: []*Node{source, window}}, Options{Parallelism: 1, MaxParallelism: 128})
		if err != nil {
			t.Fatal(err)
		}
		return p.Graph
	}
	a, b := translate(laidOut("sessions")), translate(nil)
	if got := a.Vertices[1].Operators[0].Layout; got != "sessions" {
		t.Errorf("layout %q", got)
	}
	if got := a.Vertices[0].Operators[0].Layout; got != LayoutSource {
		t.Errorf("layout of the source %q", got)
	}
	if a.Fingerprint != b.Fingerprint {
		t.Error("another fingerprint")
	}
}
