package operator

import (
	"fmt"
	"slices"
	"testing"
)

// sided is a record of the first or the second input.
type sided struct {
	second bool
	v      tagged
}

// bothInputs are the two inputs of an operator as one.
type bothInputs struct{ a, b Receiver[tagged] }

func (i bothInputs) Process(v sided, m Meta) error {
	if v.second {
		return i.b.Process(v.v, m)
	}
	return i.a.Process(v.v, m)
}

func (i bothInputs) Watermark(ts int64) error {
	if err := i.a.Watermark(ts); err != nil {
		return err
	}
	return i.b.Watermark(ts)
}

func (i bothInputs) Idle(bool) error { return nil }

// The records of a pair are its own: what a join's function, or an operator behind it, changes in them is not in the other pairs.
func TestPairsOfAJoinDoNotShareTheirRecords(t *testing.T) {
	pair := func(l, r tagged, out *Collector[tagged]) error {
		l.N[0] += 100
		r.N[0] += 1000
		out.Collect(tagged{1, []int64{l.N[0], r.N[0]}})
		return nil
	}
	spec := CoWindowSpec[int64, tagged, tagged]{One: taggedKey(), Two: taggedKey()}
	spec.Windows.Assigner = WindowAssigner[TaggedUnion[tagged, tagged]]{EventTime: true, Sliding: Sliding{Size: 100, Slide: 100}}
	windowed := JoinWindow(spec, func(_ *WindowContext[int64], l, r tagged, out *Collector[tagged]) error { return pair(l, r, out) })
	spec.Windows.Assigner.Sliding.Slide = 50
	sliding := JoinWindow(spec, func(_ *WindowContext[int64], l, r tagged, out *Collector[tagged]) error { return pair(l, r, out) })
	interval := JoinInterval(taggedKey(), taggedKey(), IntervalJoin[tagged, tagged]{Lower: -50, Upper: 50},
		func(_ *JoinContext, l, r tagged, out *Collector[tagged]) error { return pair(l, r, out) })
	for name, c := range map[string]struct {
		f     Factory
		times int // each pair is in so many windows
	}{"window": {windowed, 1}, "sliding windows": {sliding, 2}, "interval": {interval, 1}} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				hash := taggedKey().NewHash()
				h := newInputHarness[sided, tagged](t, c.f, backend, 1, func(s sided) uint32 { return hash(s.v) }, nil,
					func(op Operator) Receiver[sided] {
						return bothInputs{op.Input(0).(Receiver[tagged]), op.Input(1).(Receiver[tagged])}
					})
				defer h.close()
				var want, got []string
				for n := range int64(3) {
					h.process(sided{false, tagged{1, []int64{n}}}, 60)
					h.process(sided{true, tagged{1, []int64{n}}}, 60)
					for m := range int64(3) {
						for range c.times {
							want = append(want, fmt.Sprint([]int64{100 + n, 1000 + m}))
						}
					}
				}
				h.watermark(1000)
				for _, v := range h.take() {
					got = append(got, fmt.Sprint(v.N))
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		}
	}
}
