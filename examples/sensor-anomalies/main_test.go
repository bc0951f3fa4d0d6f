package main

import (
	"math"
	"testing"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func TestReadingsAreSorted(t *testing.T) {
	h := streamtest.New(t, watched)
	odd, bad := h.SideOutput(anomalies), h.SideOutput(malformed)
	for range 10 {
		h.Push(Reading{Sensor: "a", Celsius: 20})
	}
	h.Take()
	hot, cold, none := Reading{Sensor: "a", Celsius: 25}, Reading{Sensor: "a", Celsius: -300}, Reading{Sensor: "b", Celsius: 99}
	h.Push(hot, cold, none, Reading{Sensor: "a", Celsius: 20.5})
	odd.Expect(Anomaly{hot, 20})
	bad.Expect(cold)
	h.Expect(none, Reading{Sensor: "a", Celsius: 20.5}) // nothing is known of b yet
	if u, _ := streamtest.Key(h.Job, "watch", "a").Value[usual]("usual"); u.N != 11 || math.Abs(u.Mean-(200+20.5)/11) > 1e-9 {
		t.Errorf("learned %+v", u)
	}
}

func TestProgram(t *testing.T) {
	var odd streamtest.Output[Anomaly]
	var bad streamtest.Output[Reading]
	var means streamtest.Output[Minute]
	streamtest.Start(t, build, streamtest.Sink("anomalies", &odd), streamtest.Sink("malformed", &bad), streamtest.Sink("means", &means),
		streamtest.Args("-readings", "6000")).End()
	if got := odd.Take(); len(got) != 6 {
		t.Errorf("anomalies: %v", got)
	}
	bad.ExpectInAnyOrder(reading(2498), reading(4998))
	got := means.Take()
	for _, m := range got {
		if m.Mean < 20 || m.Mean > 20.7 {
			t.Errorf("a minute with an anomaly: %+v", m)
		}
	}
	if len(got) != 20*10 { // ten minutes
		t.Errorf("%d minutes", len(got))
	}
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, []string{"-readings", "3000"}, 104, "sensor-19: 30.5 degrees at")
}
