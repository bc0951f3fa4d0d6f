// Command sensor-anomalies watches readings of sensors: those far from what the sensor usually measures go to one side output, those that make
// no sense to another, and the rest is averaged by minute.
//
//	thalweg run -t local bin/examples/sensor-anomalies -readings 100000
package main

import (
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Reading is one measurement.
type Reading struct {
	Sensor  string
	Celsius float64
	At      time.Time
}

// Anomaly is a reading that differs from the usual ones.
type Anomaly struct {
	Reading
	Usual float64
}

func (a Anomaly) String() string {
	return fmt.Sprintf("%s: %.1f degrees at %s, usually %.1f", a.Sensor, a.Celsius, a.At.Format(time.TimeOnly), a.Usual)
}

// Minute is the mean of the usual readings of a sensor in a minute.
type Minute struct {
	Sensor string
	Start  time.Time
	Mean   float64
}

// The side outputs.
var (
	anomalies = stream.NewOutputTag[Anomaly]("anomalies")
	malformed = stream.NewOutputTag[Reading]("malformed")
)

// usual is what a sensor usually measures: Welford's running mean and variance.
type usual struct {
	N        int64
	Mean, M2 float64
}

func (u *usual) add(x float64) {
	u.N++
	d := x - u.Mean
	u.Mean += d / float64(u.N)
	u.M2 += d * (x - u.Mean)
}

// far reports whether x is more than four standard deviations, and more than a degree, away; the first ten readings are learned from.
func (u *usual) far(x float64) bool {
	return u.N >= 10 && math.Abs(x-u.Mean) > max(1, 4*math.Sqrt(u.M2/float64(u.N-1)))
}

// watch sorts readings. Anomalies are not learned from.
type watch struct {
	stream.NoTimers[string, Reading]
	usual stream.ValueState[usual]
}

func newWatch() stream.KeyedProcessFunction[string, Reading, Reading] { return &watch{} }

func (w *watch) Open(rt *stream.RuntimeContext[string]) (err error) {
	w.usual, err = rt.ValueState[usual]("usual")
	return err
}

func (w *watch) ProcessElement(ctx *stream.KeyedContext[string], r Reading, out *stream.Collector[Reading]) error {
	if r.Celsius < -273.15 || math.IsNaN(r.Celsius) {
		ctx.Output(malformed, r)
		return nil
	}
	u, _, err := w.usual.Value()
	if err != nil {
		return err
	}
	if u.far(r.Celsius) {
		ctx.Output(anomalies, Anomaly{r, u.Mean})
		return nil
	}
	u.add(r.Celsius)
	out.Collect(r)
	return w.usual.Update(u)
}

// watched is the first part of the pipeline.
func watched(readings stream.DataStream[Reading]) stream.SingleOutputStreamOperator[Reading] {
	return readings.KeyBy(func(r Reading) string { return r.Sensor }).Process(newWatch).Name("watch").UID("watch")
}

// reading makes readings of 20 sensors around 20 degrees, each thousandth of which is 10 degrees higher, and each 2500th none.
func reading(n int64) Reading {
	r := Reading{fmt.Sprintf("sensor-%02d", n%20), 20 + float64(n%7)/10, time.UnixMilli(1_767_225_600_000 + 100*n).UTC()}
	switch {
	case n%1000 == 999:
		r.Celsius += 10
	case n%2500 == 2498:
		r.Celsius = -999
	}
	return r
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("sensor-anomalies", flag.ContinueOnError)
	n := f.Int64("readings", 10_000, "readings to make")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	readings := env.FromSource(datagen.Source(reading, datagen.Count(*n)),
		stream.BoundedOutOfOrderness(5*time.Second, func(r Reading) time.Time { return r.At }), "readings").UID("readings")
	good := watched(readings.DataStream)
	good.GetSideOutput(anomalies).Print().Name("anomalies").UID("anomalies")
	good.GetSideOutput(malformed).Print().Name("malformed").UID("malformed")
	good.KeyBy(func(r Reading) string { return r.Sensor }).Window(stream.TumblingEventTime(time.Minute)).
		Average(func(r Reading) float64 { return r.Celsius }, func(sensor string, w stream.TimeWindow, mean float64) Minute {
			return Minute{sensor, w.Start, mean}
		}).Name("minutes").UID("minutes").
		Print().Name("means").UID("means")
	return nil
}

func main() { stream.Main("sensor-anomalies", build) }
