package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/bench/internal/yarnapp"
	"github.com/thalweg/thalweg/test/eos"
)

const (
	parallelism = 2
	partitions  = 2
	customers   = 1000
	window      = 100 * time.Millisecond
	startWait   = 2 * time.Minute
	// calibration is how many purchases the maximum is measured with, and calibrationStep how far apart their event times are.
	calibration     = 3_000_000
	calibrationStep = 20 * time.Microsecond
	// tick is how often the load sends what is due: each record by itself would be a request by itself, and the broker would have nothing
	// else to do. What a purchase waits for its tick counts as latency, of both engines.
	tick = 2 * time.Millisecond
	// tail is how long the load goes on after the last window that counts, so that it is closed.
	tail = time.Second
	// patience is how long the last results may take.
	patience = 30 * time.Second
)

// sample is a run of one engine at one load. Latencies are milliseconds.
type sample struct {
	Engine  string  `json:"engine"`
	Results int     `json:"results"`
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P99     float64 `json:"p99_ms"`
	P999    float64 `json:"p99_9_ms"`
	Max     float64 `json:"max_ms"`
	Cores   float64 `json:"cores"`       // that the engine's containers used, on average
	Other   float64 `json:"other_cores"` // everything else: load, reader, broker, daemons
	Late    float64 `json:"load_late_ms"`
}

// command submits the job of a side.
func (b *bench) command(ctx context.Context, side, in, out string, bounded bool) *exec.Cmd {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + " ms" }
	settings := []string{"-Dexecution.buffer-timeout.interval=" + ms(b.buffer), "-Dpipeline.auto-watermark-interval=" + ms(b.watermark), "-Dexecution.checkpointing.interval=" + ms(b.interval)}
	args := []string{"--brokers", b.cluster.KafkaBootstrap, "--in", in, "--out", out, "--guarantee", b.guarantee}
	if side == peer {
		return b.yarn.Submit(ctx, out, "thalweg.bench.Orders", settings,
			append(args, "--window-ms", strconv.FormatInt(window.Milliseconds(), 10), "--out-of-orderness", "0", "--bounded", strconv.FormatBool(bounded), "--linger-ms", "0")...)
	}
	argv := append([]string{"run", "-t", "yarn-application", "-d", "-o", "json", "-p", strconv.Itoa(parallelism), "-Dyarn.application.name=" + out, "-Drestart-strategy.type=none",
		"-Dstate.backend.type=hashmap", "-Dtaskmanager.numberOfTaskSlots=" + strconv.Itoa(parallelism)}, settings...)
	argv = append(append(argv, filepath.Join(b.bin, "examples", "order-totals")), args...)
	argv = append(argv, "--group", out, "--txn-prefix", out+"-", "--window", window.String(), "--out-of-orderness", "0s", "--linger", "0s")
	if bounded {
		argv = append(argv, "--bounded")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "thalweg"), argv...)
	cmd.Env = append(os.Environ(), b.cluster.Env()...)
	return cmd
}

// topics makes the topics of a run, which drop removes.
func (b *bench) topics(ctx context.Context, side string) (in, out string, drop func(), err error) {
	b.n++
	in, out = fmt.Sprintf("bench-latency-in-%d-%d", os.Getpid(), b.n), fmt.Sprintf("bench-latency-%s-%d-%d", side, os.Getpid(), b.n)
	drop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		cl, err := b.client()
		if err == nil {
			defer cl.Close()
			_, err = kadm.NewClient(cl).DeleteTopics(ctx, in, out)
		}
		if err != nil {
			b.logf("remove topics: %v", err)
		}
	}
	return in, out, drop, b.kafka.CreateTopics(ctx, partitions, in, out)
}

func (b *bench) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(b.cluster.KafkaBootstrap), kgo.DisableClientMetrics())...)
}

// calibrate measures how fast each engine reads a full topic to its end.
func (b *bench) calibrate(ctx context.Context) (map[string]float64, error) {
	most := map[string]float64{}
	for _, side := range b.sides() {
		in, out, drop, err := b.topics(ctx, side)
		if err != nil {
			return nil, err
		}
		if _, err = b.send(ctx, in, load{begin: time.Now(), step: calibrationStep, n: calibration}); err == nil {
			var a *yarnapp.App
			if a, err = yarnapp.Launch(ctx, b.cluster, b.command(ctx, side, in, out, true), out, startWait); err == nil {
				app, _, failed := a.End(ctx, 10*time.Minute)
				err = failed
				most[side] = calibration / (float64(app.Finished-a.Began.UnixMilli()) / 1000)
			}
		}
		drop()
		if err != nil {
			return nil, fmt.Errorf("the maximum of %s: %w", side, err)
		}
		b.logf("%-8s at most %.0f events/s", side, most[side])
	}
	return most, nil
}

// load is an open loop: purchase n is due at begin + n*step, and that is its event time, whether or not it can be sent then.
type load struct {
	begin time.Time
	step  time.Duration
	n     int64
	paced bool
	late  time.Duration // the most that one was sent after it was due
}

func (l *load) due(n int64) time.Time { return l.begin.Add(time.Duration(n) * l.step) }

// send writes a load to a topic and returns it with how late it was.
func (b *bench) send(ctx context.Context, topic string, l load) (load, error) {
	cl, err := b.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return l, err
	}
	defer cl.Close()
	failed := make(chan error, 1)
	for n := int64(0); n < l.n; {
		now := time.Now()
		if l.paced {
			if d := l.due(n).Sub(now); d > 0 {
				time.Sleep(now.Truncate(tick).Add(tick).Sub(now))
				continue
			}
			l.late = max(l.late, now.Sub(l.due(n)))
		}
		select {
		case err := <-failed:
			return l, err
		case <-ctx.Done():
			return l, context.Cause(ctx)
		default:
		}
		for k := 0; k < 1000 && n < l.n && !(l.paced && l.due(n).After(now)); k++ {
			p := purchase(n, l.due(n))
			value, err := json.Marshal(p)
			if err != nil {
				return l, err
			}
			cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
			n++
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return l, err
	}
	select {
	case err := <-failed:
		return l, err
	default:
		return l, nil
	}
}

func purchase(n int64, at time.Time) eos.Purchase {
	x := uint64(n) * 0x9e3779b97f4a7c15
	return eos.Purchase{Customer: "c" + strconv.FormatUint((x>>33)%customers, 10), Cents: 1 + n%1000, At: at.Truncate(time.Millisecond).UTC()}
}

// measure runs one engine under one load.
func (b *bench) measure(ctx context.Context, side string, rate float64) (s sample, err error) {
	in, out, drop, err := b.topics(ctx, side)
	if err != nil {
		return s, err
	}
	defer drop()
	a, err := yarnapp.Launch(ctx, b.cluster, b.command(ctx, side, in, out, false), out, startWait)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, a.Kill(ctx)) }()
	l := load{begin: time.Now().Add(time.Second).Truncate(window), step: time.Duration(float64(time.Second) / rate), paced: true}
	first := l.begin.Add(time.Duration(b.warm) * time.Second) // start of the first window that counts
	last := first.Add(time.Duration(b.seconds) * time.Second) // end of the last
	l.n = int64((last.Sub(l.begin) + tail) / l.step)
	want := map[int64]int64{} // purchases by start of window, ms
	for n := range l.n {
		if at := l.due(n).Truncate(time.Millisecond); !at.Before(first) && at.Before(last) {
			want[at.Truncate(window).UnixMilli()]++
		}
	}
	sent := make(chan error, 1)
	ctx, cancel := context.WithDeadline(ctx, last.Add(patience))
	defer cancel()
	go func() { // ends with its load, or with ctx
		var err error
		l, err = b.send(ctx, in, l)
		sent <- err
	}()
	r := reading{first: first.UnixMilli(), last: last.UnixMilli(), want: want, seen: map[key]bool{}}
	cpu, busy, from := a.CPU(), proc.Busy(), time.Now()
	err = b.read(ctx, out, &r)
	wall := time.Since(from).Seconds()
	s.Cores = (a.CPU() - cpu).Seconds() / wall
	s.Other = (proc.Busy()-busy).Seconds()/wall - s.Cores
	if err != nil {
		cancel()
		return s, errors.Join(err, <-sent)
	}
	if err := <-sent; err != nil {
		return s, err
	}
	if len(r.wrong) > 0 {
		return s, fmt.Errorf("the run is void: %d wrong results, such as %s", len(r.wrong), r.wrong[0])
	}
	s.Engine, s.Results, s.Late = side, len(r.latencies), float64(l.late.Microseconds())/1000
	slices.Sort(r.latencies)
	at := func(q float64) float64 {
		return float64(r.latencies[int(q*float64(len(r.latencies)-1))].Microseconds()) / 1000
	}
	s.P50, s.P90, s.P99, s.P999, s.Max = at(0.5), at(0.9), at(0.99), at(0.999), at(1)
	b.logf("%-8s %.0f events/s: p50 %.1f ms, p99 %.1f, p99.9 %.1f, max %.1f; %.2f cores", side, rate, s.P50, s.P99, s.P999, s.Max, s.Cores)
	return s, nil
}

// key is a result's.
type key struct {
	customer string
	start    int64
}

// reading is what a reader of committed records saw of the windows that count.
type reading struct {
	first, last int64           // starts and ends of windows, ms
	want        map[int64]int64 // purchases that are still to be counted, by start of window
	seen        map[key]bool
	latencies   []time.Duration
	wrong       []string
}

func (r *reading) take(value []byte, at time.Time) {
	var t eos.Total
	if err := json.Unmarshal(value, &t); err != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("%q: %v", value, err))
		return
	}
	start := t.Start.UnixMilli()
	if start < r.first || t.End.UnixMilli() > r.last {
		return
	}
	k := key{t.Customer, start}
	if r.seen[k] {
		r.wrong = append(r.wrong, fmt.Sprintf("twice: %s", value))
		return
	}
	r.seen[k] = true
	r.latencies = append(r.latencies, at.Sub(t.End))
	if r.want[start] -= t.Count; r.want[start] == 0 {
		delete(r.want, start)
	}
}

// read reads results until every purchase of the windows that count is in one.
func (b *bench) read(ctx context.Context, topic string, r *reading) error {
	cl, err := b.client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchMinBytes(1))
	if err != nil {
		return err
	}
	defer cl.Close()
	for len(r.want) > 0 {
		fs := cl.PollFetches(ctx)
		at := time.Now()
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read the results: %w (%d windows have not all of theirs; %d results came)", err, len(r.want), len(r.latencies))
		}
		fs.EachRecord(func(rec *kgo.Record) { r.take(rec.Value, at) })
	}
	return nil
}
