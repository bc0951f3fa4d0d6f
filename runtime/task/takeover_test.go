package task

import (
	"slices"
	"testing"

	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// What a task tells the next JobMaster is enough to know whether its splits are those of a checkpoint, whenever they came.
func TestTakeover(t *testing.T) {
	assign, custom, allowed := []byte(`{"assign":[{"ID":"a"}]}`), []byte(`{"custom":"eA=="}`), []byte(`{"allowed":5}`)
	for name, c := range map[string]struct {
		do        func(o *Takeover)
		taken     []int64
		assigned  int64
		custom    bool
		suspended bool
	}{
		"nothing":                     {func(*Takeover) {}, nil, -1, false, false},
		"before the first checkpoint": {func(o *Takeover) { o.Received(assign) }, nil, 3, false, false},
		"between two":                 {func(o *Takeover) { o.Triggered(4, false); o.Received(assign); o.Triggered(5, false) }, []int64{4, 5}, 4, false, false},
		"behind a complete one":       {func(o *Takeover) { o.Triggered(4, false); o.Completed(4); o.Received(assign) }, []int64{4}, 4, false, false},
		"behind one that was given up": {func(o *Takeover) {
			o.Triggered(4, false)
			o.Completed(4)
			o.Triggered(5, false)
			o.Aborted(5, false)
			o.Received(assign)
		}, []int64{4}, 4, false, false},
		"what precedes a complete one":  {func(o *Takeover) { o.Triggered(4, false); o.Triggered(5, false); o.Completed(5) }, []int64{5}, -1, false, false},
		"a late word that one is over":  {func(o *Takeover) { o.Triggered(4, false); o.Completed(4); o.Aborted(4, false) }, []int64{4}, -1, false, false},
		"alignment is no news":          {func(o *Takeover) { o.Received(allowed) }, nil, -1, false, false},
		"no more splits":                {func(o *Takeover) { o.Received([]byte(`{"noMore":true}`)) }, nil, 3, false, false},
		"events of the connector":       {func(o *Takeover) { o.Received(custom) }, nil, 3, false, false},
		"events to the enumerator":      {func(o *Takeover) { o.Sent(custom) }, nil, -1, true, false},
		"requests are asked again":      {func(o *Takeover) { o.Sent([]byte(`{"request":true}`)) }, nil, -1, false, false},
		"what cannot be read is a word": {func(o *Takeover) { o.Received([]byte(`{`)) }, nil, 3, false, false},
		"stopping":                      {func(o *Takeover) { o.Triggered(4, true) }, []int64{4}, -1, false, true},
		"a stop that was given up":      {func(o *Takeover) { o.Triggered(4, true); o.Aborted(4, true) }, nil, -1, false, false},
		"a stop that nobody took back":  {func(o *Takeover) { o.Triggered(4, true); o.Aborted(4, false) }, nil, -1, false, true},
	} {
		o := NewTakeover(3)
		c.do(o)
		var m pb.SurvivingTask
		if o.Fill(&m); !slices.Equal(m.GetTaken(), c.taken) || m.GetAssigned() != c.assigned || m.GetCustom() != c.custom || m.GetSuspended() != c.suspended || m.GetRestoredCheckpointId() != 3 {
			t.Errorf("%s: %v", name, &m)
		}
	}
}
