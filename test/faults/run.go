package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/test/eos"
	"github.com/thalweg/thalweg/test/kafkaproxy"
	"github.com/thalweg/thalweg/test/rig"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults: kill -9 of a process of the application, restart of a daemon.
const (
	Worker            Kind = "worker"
	TaskManager       Kind = "TaskManager"
	ApplicationMaster Kind = "application master"
	Coordinator       Kind = "coordinator process"
	Broker            Kind = "Kafka broker"
	ResourceManager   Kind = "ResourceManager"
)

// Options of a run.
type Options struct {
	Cluster *rig.Cluster
	Bin     string // folder with the built binaries
	Seed    uint64
	Records int64
	Faults  map[Kind]int
	Backend string
	History string // file that the run is written to
	Log     io.Writer

	// Long runs have these in place of Faults. Bin holds binaries with failpoints then (make build-faults).
	Steps    []Step
	Every    time.Duration // a step begins no sooner than this after the one before; 0: as soon as the job is healthy
	Ending   string        // failpoint at which the application master is killed while the job is cancelled; empty: none
	Interval time.Duration // between checkpoints; 0: 1 s
}

// long reports whether faults strike at failpoints, in the network and in HDFS too.
func (o Options) long() bool { return len(o.Steps) > 0 }

func (o Options) interval() string {
	if o.Interval > 0 {
		return fmt.Sprintf("%d ms", o.Interval.Milliseconds())
	}
	return "1 s"
}

// Recovery is one fault and what followed.
type Recovery struct {
	Kind   Kind
	Lasted time.Duration // of a long run's fault
	Output time.Duration // until a record of the new run of the job was written; in long runs, after the fault's end, until a new checkpoint too
	Same   bool          // application master: the same containers serve the new attempt
}

// Report is the result of a run.
type Report struct {
	History    *eos.History
	Verdict    *eos.Verdict
	Recoveries []Recovery
	App        string
	Injected   int      // faults of a long run
	Reached    []string // failpoints that any process came to
	Late       int      // EndTxn requests that were delivered late
	Flowed, Of int      // seconds of a long run with output, of all
}

// spec is the input: windows of a second of event time, and about a hundred of event time's seconds for each of real time's ten, so that
// output flows all the time. Some records cannot be decoded, and go to the dead letters.
func spec(o Options) eos.Spec {
	s := eos.DefaultSpec(o.Seed, o.Records)
	s.Customers, s.Window, s.Step, s.OutOfOrder = 20, time.Second, 5*time.Millisecond, 500*time.Millisecond
	s.MalformedEvery = 250
	if o.long() {
		s.HotEvery = 2
	}
	return s
}

const (
	parallelism = 2
	perFault    = 9 * time.Second  // length of the input for each fault
	perStep     = 15 * time.Second // and in long runs
)

// pace is the length of the input for each fault.
func (o Options) pace() time.Duration {
	switch {
	case o.Interval > 0: // many transactions for each fault, and no transaction without output
		return 4 * perStep
	case o.long():
		return max(perStep, o.Every)
	}
	return perFault
}

// Run submits the job, injects the faults while input is written, waits for all results, cancels the job and judges. With an error the report
// has what there was until then.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{o: o, spec: spec(o), name: fmt.Sprintf("faults-%d-%s-%d", o.Seed, o.Backend, time.Now().UnixMilli()), rng: rand.New(rand.NewPCG(o.Seed, 7))}
	r.kafka = eos.Cluster{Brokers: []string{o.Cluster.KafkaBootstrap}}
	r.in, r.out, r.dead, r.group, r.prefix = r.name+"-in", r.name+"-out", r.name+"-dead", r.name, r.name+"-"
	rep, err := r.run(ctx)
	if rep == nil { // what it has come to before it failed
		rep = &r.report
	}
	return rep, err
}

type run struct {
	o                            Options
	spec                         eos.Spec
	name                         string
	rng                          *rand.Rand
	kafka                        eos.Cluster
	in, out, dead, group, prefix string
	job                          *job
	watch                        *eos.Watcher
	checkpoints                  *checkpoints
	raw                          rawReader
	report                       Report
	left                         atomic.Int64 // faults to come
	burst                        atomic.Int64 // seconds whose records are to be written at once

	// Of long runs.
	armoury    *failpoint.Armoury
	proxy      *kafkaproxy.Proxy
	savepoints string // folder, URI
	disk       *disk  // of local files; nil when this is not root
	usage      usage

	mu       sync.Mutex // guards rng while two faults are injected, and what follows
	injected []eos.Event
}

func (r *run) logf(format string, args ...any) {
	fmt.Fprintf(r.o.Log, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

func (r *run) run(ctx context.Context) (*Report, error) {
	faults := r.plan()
	r.left.Store(int64(len(faults) + len(r.o.Steps)))
	r.logf("seed %d: %d records, %s backend, %d faults: %v", r.o.Seed, r.o.Records, r.o.Backend, r.left.Load(), faults)
	if r.o.long() {
		end, err := r.prepareLong()
		if err != nil {
			return nil, err
		}
		defer end()
	}
	if err := r.kafka.CreateTopics(ctx, r.spec.Partitions, r.in, r.out, r.dead); err != nil {
		return nil, err
	}
	var err error
	if r.watch, err = r.kafka.Watch(ctx, r.out, r.in, r.group); err != nil {
		return nil, err
	}
	defer r.watch.Stop() //nolint:errcheck // judged below when the run gets there
	if err := r.raw.start(ctx, r.o.Cluster.KafkaBootstrap, r.out); err != nil {
		return nil, err
	}
	defer r.raw.stop()
	if err := r.submit(ctx); err != nil {
		return nil, err
	}
	defer r.cleanup()
	dir, err := answered(ctx, "the folder of the checkpoints", r.job.checkpointDir)
	if err != nil {
		return nil, err
	}
	if r.checkpoints, err = watchCheckpoints(ctx, r.o.Cluster, dir, r.savepoints); err != nil {
		return nil, err
	}
	defer r.checkpoints.stop() //nolint:errcheck // judged below when the run gets there
	wctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	written := make(chan error, 1)
	wg.Go(func() { written <- r.write(wctx) })
	defer func() { cancel(); wg.Wait() }()
	if err := until(ctx, 3*time.Minute, "first output", func(context.Context) (bool, error) { return r.raw.last().After(time.Time{}), nil }); err != nil {
		return nil, err
	}
	for i, k := range faults {
		if err := r.inject(ctx, i, k); err != nil {
			return nil, fmt.Errorf("faults: seed %d: fault %d (%s): %w", r.o.Seed, i+1, k, err)
		}
		r.left.Add(-1)
	}
	failed, stuck := r.steps(ctx)
	if stuck != nil {
		return nil, stuck
	}
	if err := <-written; err != nil {
		return nil, errors.Join(failed, err)
	}
	rep, err := r.judge(ctx)
	return rep, errors.Join(failed, err)
}

// plan draws the order of the faults. Kills of the application master stand apart: YARN counts only failures inside of a window.
func (r *run) plan() []Kind {
	var all []Kind
	for _, k := range []Kind{Worker, TaskManager, ApplicationMaster, Broker, ResourceManager} {
		for range r.o.Faults[k] {
			all = append(all, k)
		}
	}
	r.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := 1; i < len(all); i++ {
		if all[i] != ApplicationMaster || all[i-1] != ApplicationMaster {
			continue
		}
		for j := range all {
			apart := all[j] != ApplicationMaster && (j == 0 || all[j-1] != ApplicationMaster) && (j == len(all)-1 || all[j+1] != ApplicationMaster)
			if apart {
				all[i], all[j] = all[j], all[i]
				break
			}
		}
	}
	return all
}

// submit submits the job; more are options of thalweg run.
func (r *run) submit(ctx context.Context, more ...string) (err error) {
	conf := []string{"-p", fmt.Sprint(parallelism), "-Dyarn.application.name=" + r.name, "-Dexecution.checkpointing.interval=" + r.o.interval(),
		"-Dstate.backend.type=" + r.o.Backend, "-Drestart-strategy.exponential-delay.initial-backoff=200 ms",
		"-Dexecution.checkpointing.tolerable-failed-checkpoints=1000", "-Dyarn.application-attempts=4",
		fmt.Sprintf("-Dexecution.checkpointing.num-retained=%d", retained)}
	conf = append(conf, more...)
	brokers := r.o.Cluster.KafkaBootstrap
	if r.o.long() {
		conf = append(conf, r.longConf()...)
		brokers = r.proxy.Addr()
	}
	r.job, err = submit(ctx, r.o.Cluster, r.o.Bin, conf, "--brokers", brokers, "--in", r.in, "--out", r.out, "--dead-letter", r.dead, "--group", r.group,
		"--txn-prefix", r.prefix, "--window", "1s", "--out-of-orderness", "500ms", "--idle", "0", "--discovery", "0")
	if err != nil {
		return err
	}
	r.report.App = r.job.app
	r.logf("submitted %s, job %s", r.job.app, r.job.id)
	return until(ctx, 3*time.Minute, "the job RUNNING", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		return s.running(), err
	})
}

// write writes the input, second by second, at a rate that leaves records for every fault that is still to come; once all are done it
// writes the rest at once.
func (r *run) write(ctx context.Context) error {
	for next := int64(0); next < r.o.Records; {
		n, rate := r.o.Records-next, 0.0
		if left := r.left.Load(); left > 0 {
			rate = float64(n) / (r.o.pace() * time.Duration(left+1)).Seconds()
			more := r.burst.Swap(0)
			n = min(n, max(1, int64(rate*float64(1+more))))
			if more > 0 {
				rate = 0
			}
		}
		if err := r.kafka.Write(ctx, r.in, r.spec, next, next+n, rate); err != nil {
			return err
		}
		next += n
	}
	return r.kafka.WriteSentinels(ctx, r.in, r.spec)
}

// inject waits until the job is healthy and a random while longer, injects one fault and waits until output flows again.
func (r *run) inject(ctx context.Context, i int, k Kind) error {
	if err := r.healthy(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(r.rng.Int64N(int64(3 * time.Second)))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	before, err := answered(ctx, "the list of TaskManagers", r.job.containers)
	if err != nil {
		return err
	}
	was, err := answered(ctx, "the job's state", r.job.state)
	if err != nil {
		return err
	}
	rec := Recovery{Kind: k}
	at := time.Now()
	r.injected = append(r.injected, eos.Event{Kind: eos.KindFault, At: at.UTC(), Text: string(k)})
	switch k {
	case Broker:
		err = r.o.Cluster.Restart(ctx, "kafka")
	case ResourceManager:
		err = r.o.Cluster.Restart(ctx, "resourcemanager")
	default:
		err = r.kill(k)
	}
	if err != nil {
		return err
	}
	var running time.Time
	switch k {
	case Broker, ResourceManager: // not a restart of the job
		running = time.Now()
	default:
		if running, err = r.restarted(ctx, was.Restarts); err != nil {
			return err
		}
	}
	if err := until(ctx, 90*time.Second, "output after the fault", func(context.Context) (bool, error) { return r.raw.last().After(running), nil }); err != nil {
		return err
	}
	rec.Output = r.raw.firstAfter(running).Sub(at)
	if k == ApplicationMaster {
		after, err := answered(ctx, "the list of TaskManagers", r.job.containers)
		if err != nil {
			return err
		}
		slices.Sort(before)
		slices.Sort(after)
		rec.Same = slices.Equal(before, after)
	}
	r.report.Recoveries = append(r.report.Recoveries, rec)
	r.logf("fault %d: %s: output again after %v", i+1, k, rec.Output.Round(time.Millisecond))
	return nil
}

// healthy waits until all tasks run and a checkpoint completed since.
func (r *run) healthy(ctx context.Context) error {
	var first int64 = -1
	return until(ctx, 2*time.Minute, "a healthy job with a new checkpoint", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		if err != nil || !s.running() {
			first = -1
			return false, err
		}
		n, err := r.job.completed(ctx)
		if err != nil {
			return false, err
		}
		if first < 0 {
			first = n
		}
		return n > first, nil
	})
}

// one draws a process of a kind.
func (r *run) one(k Kind) (process, error) {
	all, err := processes(r.job.app)
	if err != nil {
		return process{}, err
	}
	var of []process
	for _, p := range all {
		if p.kind == k {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return process{}, fmt.Errorf("faults: no %s process found among %d of %s", k, len(all), r.job.app)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return of[r.rng.IntN(len(of))], nil
}

func (r *run) kill(k Kind) error { return r.signal(k, syscall.SIGKILL) }

// signal signals one process of a kind.
func (r *run) signal(k Kind, sig syscall.Signal) error {
	p, err := r.one(k)
	if err != nil {
		return err
	}
	r.logf("signal %d to the %s, pid %d of %s", sig, k, p.pid, p.container)
	if err := syscall.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("faults: signal %s %d: %w", k, p.pid, err)
	}
	return nil
}

// restarted waits until the job runs anew: it was seen not to run, or its count of restarts rose.
func (r *run) restarted(ctx context.Context, before int) (time.Time, error) {
	down := false
	err := until(ctx, 2*time.Minute, "the job's restart", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		if err != nil || !s.running() {
			down = true
			return false, err
		}
		return down || s.Restarts > before, nil
	})
	return time.Now(), err
}
