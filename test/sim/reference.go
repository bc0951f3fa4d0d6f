package sim

import (
	"cmp"
	"slices"
)

// fold is what the job makes of the first next[s] records of each split s, thought of as one after another: the totals of the keys and the
// outputs that do not wait for the time.
func fold(in [][]Event, next []int64) (totals map[int64]Total, outs []Out) {
	totals = map[int64]Total{}
	for s, n := range next {
		for _, e := range in[s][:n] {
			t := totals[e.Key]
			t.N++
			t.Sum += e.Value
			totals[e.Key] = t
			outs = append(outs, Out{Kind: kindTotal, Key: e.Key, N: t.N, Sum: t.Sum})
		}
	}
	return totals, outs
}

// reference is the whole output of the job with so many pipelines, sorted.
func reference(in [][]Event, pipes int) []Out {
	ends := make([]int64, len(in))
	for s := range in {
		ends[s] = int64(len(in[s]))
	}
	_, outs := fold(in, ends)
	type pane struct{ key, start int64 }
	panes := map[pane]Total{}
	for _, split := range in {
		for _, e := range split {
			p := pane{groupOf(e, pipes), e.Time - e.Time%windowSize}
			t := panes[p]
			t.N++
			t.Sum += e.Value
			panes[p] = t
			if e.N%timerEvery == 0 {
				outs = append(outs, Out{Kind: kindTimer, Key: e.Key, At: timerOf(e)})
			}
		}
	}
	for p, t := range panes {
		outs = append(outs, Out{Kind: kindWindow, Key: p.key, N: t.N, Sum: t.Sum, At: p.start})
	}
	slices.SortFunc(outs, compareOut)
	return outs
}

func compareOut(a, b Out) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), cmp.Compare(a.At, b.At), cmp.Compare(a.N, b.N), cmp.Compare(a.Sum, b.Sum))
}
