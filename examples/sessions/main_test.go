package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func at(minutes int) time.Time { return streamtest.At(time.Duration(minutes) * time.Minute) }

func TestALateClickJoinsTwoVisits(t *testing.T) {
	h := streamtest.New(t, visits)
	push := func(minute int) { h.PushAt(at(minute), Click{"a", fmt.Sprint("/", minute), at(minute)}) }
	for _, minute := range []int{0, 50, 10, 60, 25} { // 10 and 50 are too far apart, until 25 comes
		push(minute)
	}
	h.Watermark(at(89))
	h.Expect()
	h.Watermark(at(90))
	h.Expect(Visit{"a", 5, "/0", "/60", at(0), at(60)})
	push(100)
	h.End()
	h.Expect(Visit{"a", 1, "/100", "/100", at(100), at(100)})
}

func TestProgram(t *testing.T) {
	var out streamtest.Output[Visit]
	streamtest.Start(t, build, streamtest.Sink("out", &out), streamtest.Args("-clicks", "500")).End()
	var want []Visit
	for n := range int64(500) {
		if n/10%10 == 0 { // the first click of a visit
			first, last := click(n), click(n+90)
			want = append(want, Visit{first.User, 10, "/page/0", "/page/9", first.At, last.At})
		}
	}
	out.ExpectInAnyOrder(want...)
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, nil, 100, "user-7: 10 clicks in 9m0s, from /page/0 to /page/9")
}
