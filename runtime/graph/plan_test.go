package graph

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// diamond is a program with chains, a branch, a side output and two inputs.
func diamond(t *testing.T) *JobGraph {
	t.Helper()
	src := &Node{Kind: "source", Name: "Source: orders", UID: "orders", Source: true, OutType: "order", OutImpl: 1, Detail: "NoWatermarks"}
	filter := &Node{Kind: "filter", Name: "Filter", OutType: "order", OutImpl: 1, In: []Edge{{From: src}}, Side: map[string]any{"bad": 1}}
	keyed := &Node{Kind: "window", Name: "Window", UID: "totals", Keyed: true, KeyType: "string#0011", OutType: "total", OutImpl: 1, In: []Edge{{From: filter, Partitioner: Hash}}, SlotSharingGroup: "heavy"}
	bad := &Node{Kind: "sink", Name: "Sink: bad", In: []Edge{{From: filter, Tag: "bad"}}}
	rules := &Node{Kind: "source", Name: "Source: rules", Source: true, OutType: "rule", OutImpl: 1, Parallelism: 1}
	both := &Node{Kind: "broadcast", Name: "Apply", Description: "apply the rules -> alerts", OutType: "alert", OutImpl: 1,
		In: []Edge{{From: keyed, Partitioner: Rebalance}, {From: rules, Input: 1, Partitioner: Broadcast}}}
	out := &Node{Kind: "sink", Name: "Sink: out", In: []Edge{{From: both}}}
	p, err := Translate(&StreamGraph{Name: "job", Nodes: []*Node{src, filter, keyed, bad, rules, both, out}}, Options{Parallelism: 2, Chaining: true, ChainAcross: true, DefaultMax: func(int) int { return 128 }})
	if err != nil {
		t.Fatal(err)
	}
	return p.Graph
}

func TestPlanInFlinksForm(t *testing.T) {
	g := diamond(t)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(g.Plan()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"nodes":[{"id":1,"type":"Source: orders","pact":"Data Source","contents":"Source: orders","parallelism":2,"uid":"orders"`,
		`{"id":2,"type":"Filter","pact":"Operator","contents":"Filter","parallelism":2,"predecessors":[{"id":1,"ship_strategy":"FORWARD","side":"first"}]`,
		`"type":"Sink: bad","pact":"Data Sink","contents":"Sink: bad","parallelism":2,"predecessors":[{"id":2,"ship_strategy":"FORWARD","side":"first","output_tag":"bad"}]`,
		`"predecessors":[{"id":2,"ship_strategy":"HASH","side":"first"}]`,
		`"type":"Apply","pact":"Operator","contents":"apply the rules -> alerts","parallelism":2,"predecessors":[{"id":4,"ship_strategy":"REBALANCE","side":"first"},{"id":5,"ship_strategy":"BROADCAST","side":"second"}]`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, &b)
		}
	}
}

// Operators that share a name are told apart by the line of their call.
func TestTreeTellsEqualNamesApart(t *testing.T) {
	src := &Node{Kind: "source", Name: "Source: orders", Source: true, OutType: "order", OutImpl: 1, CallSite: "main.go:10"}
	one := &Node{Kind: "sink", Name: "Sink: Unnamed", In: []Edge{{From: src}}, CallSite: "main.go:11"}
	other := &Node{Kind: "sink", Name: "Sink: Unnamed", UID: "out", In: []Edge{{From: src}}, CallSite: "main.go:12"}
	p, err := Translate(&StreamGraph{Name: "job", Nodes: []*Node{src, one, other}}, Options{Parallelism: 1, Chaining: true, ChainAcross: true, DefaultMax: func(int) int { return 128 }})
	if err != nil {
		t.Fatal(err)
	}
	want := "   Source: orders\n   |- Sink: Unnamed  (main.go:11)\n   `- Sink: Unnamed  (uid out; main.go:12)\n"
	if got := p.Graph.Tree(); !strings.HasSuffix(got, want) {
		t.Errorf("tree:\n%s\nwant:\n%s", got, want)
	}
}

func TestTree(t *testing.T) {
	want := `job: STREAMING, 7 operators in 4 tasks, 4 slots

1  parallelism 2, max parallelism 128, slot sharing group default
   Source: orders  (uid orders; NoWatermarks)
   ` + "`" + `- Filter
      ` + "`" + `- Sink: bad  (side output "bad")

2  parallelism 2, max parallelism 128, slot sharing group heavy
   <- HASH from 1 Filter
   Window  (uid totals; key string)

3  parallelism 1, max parallelism 128, slot sharing group default
   Source: rules

4  parallelism 2, max parallelism 128, slot sharing group default
   <- REBALANCE from 2 Window (first input)
   <- BROADCAST from 3 Source: rules (second input)
   Apply - apply the rules -> alerts
   ` + "`" + `- Sink: out
`
	if got := diamond(t).Tree(); got != want {
		t.Errorf("tree:\n%s\nwant:\n%s", got, want)
	}
}
