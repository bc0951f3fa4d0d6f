package graph

import (
	"fmt"
	"reflect"
)

// Diff describes the first difference between two job graphs of one program, or "" when their fingerprints agree. a and b name the two
// in the text, such as "first build" and "second build".
func Diff(x, y *JobGraph, a, b string) string {
	if x.Fingerprint == y.Fingerprint {
		return ""
	}
	if x.Name != y.Name {
		return fmt.Sprintf("the job's name is %q in the %s and %q in the %s", x.Name, a, y.Name, b)
	}
	if x.Mode != y.Mode {
		return fmt.Sprintf("the job runs in %s in the %s and in %s in the %s", x.Mode.Name(), a, y.Mode.Name(), b)
	}
	for i := range max(len(x.Vertices), len(y.Vertices)) {
		if i >= len(x.Vertices) {
			return fmt.Sprintf("%q is only in the %s", y.Vertices[i].Name, b)
		}
		if i >= len(y.Vertices) {
			return fmt.Sprintf("%q is only in the %s", x.Vertices[i].Name, a)
		}
		if d := diffVertex(&x.Vertices[i], &y.Vertices[i], a, b); d != "" {
			return d
		}
	}
	return fmt.Sprintf("versions: protocol %d, SDK %s in the %s; protocol %d, SDK %s in the %s", x.Protocol, x.SDK, a, y.Protocol, y.SDK, b)
}

func diffVertex(x, y *Vertex, a, b string) string {
	for i := range max(len(x.Operators), len(y.Operators)) {
		if i >= len(x.Operators) || i >= len(y.Operators) {
			return fmt.Sprintf("the chain %q in the %s is %q in the %s", x.Name, a, y.Name, b)
		}
		p, q := x.Operators[i], y.Operators[i]
		site := p.CallSite
		p.CallSite, q.CallSite = "", ""
		p.Layout, q.Layout = "", ""
		if p != q {
			return fmt.Sprintf("%s: operator %d of %q is %s in the %s and %s in the %s", site, i+1, x.Name, p.brief(), a, q.brief(), b)
		}
	}
	if x.Parallelism != y.Parallelism || x.MaxParallelism != y.MaxParallelism || x.MaxDerived != y.MaxDerived {
		return fmt.Sprintf("%q has parallelism %d (max %d%s) in the %s and %d (max %d%s) in the %s", x.Name, x.Parallelism, x.MaxParallelism, derived(x), a, y.Parallelism, y.MaxParallelism, derived(y), b)
	}
	if !reflect.DeepEqual(x.Inputs, y.Inputs) || !reflect.DeepEqual(x.Outputs, y.Outputs) {
		return fmt.Sprintf("the edges of %q differ between the %s and the %s", x.Name, a, b)
	}
	return ""
}

func derived(v *Vertex) string {
	if v.MaxDerived {
		return ", derived"
	}
	return ""
}

func (o Operator) brief() string {
	s := fmt.Sprintf("%s %q", o.Kind, o.Name)
	if o.UID != "" {
		s += fmt.Sprintf(" (uid %q)", o.UID)
	}
	if o.Detail != "" {
		s += " " + o.Detail
	}
	return s + " of " + o.OutType
}
