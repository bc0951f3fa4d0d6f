package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/bench/internal/yarnapp"
	"github.com/thalweg/thalweg/test/eos"
	"github.com/thalweg/thalweg/test/rig"
)

// kafkaCase is case (c): purchases in four partitions are added up per customer and minute of event time.
type kafkaCase struct {
	b       *bench
	cluster *rig.Cluster
	kafka   eos.Cluster
	yarn    *flink.Yarn
	spec    eos.Spec
	topic   string
	want    map[window]sum
	daemons []int
	broker  int
	run     int
}

type window struct {
	customer string
	start    int64 // milliseconds
}

type sum struct{ cents, count int64 }

// spec is the input: a minute of event time has 60,000 purchases of 10,000 customers.
func spec(n int64) eos.Spec {
	s := eos.DefaultSpec(1, n)
	s.Customers, s.Step = 10_000, time.Millisecond
	return s
}

const kafkaWait = 10 * time.Minute

// kafka prepares case (c): the rig's cluster, the input, and what comes out of it by a plain computation.
func kafka(b *bench, ctx context.Context, c testCase) (engines, error) {
	e := engines{run: map[string]func(context.Context, int64) (sample, error){}, close: func() error { return nil }}
	cluster, err := rig.Start(ctx, rig.Options{Progress: b.out})
	if err != nil {
		return e, err
	}
	k := &kafkaCase{b: b, cluster: cluster, kafka: eos.Cluster{Brokers: []string{cluster.KafkaBootstrap}}, spec: spec(b.scaled(c.events[thalweg]))}
	for _, s := range cluster.Status(ctx) {
		if s.Ready != nil {
			return e, fmt.Errorf("%s: %w", s.Daemon, s.Ready)
		}
		if s.Daemon == rig.Kafka {
			k.broker = s.PID
		} else {
			k.daemons = append(k.daemons, s.PID)
		}
	}
	if err := flink.Idle(ctx, cluster); err != nil {
		return e, err
	}
	if err := k.input(ctx); err != nil {
		return e, err
	}
	k.compute()
	e.run[thalweg] = func(ctx context.Context, _ int64) (sample, error) { return k.measure(ctx, thalweg, c) }
	if b.only == thalweg {
		return e, nil
	}
	k.yarn, err = b.flink.OnYARN(ctx, cluster, filepath.Join(b.dir, "flink-yarn"), map[string]string{
		"taskmanager.memory.process.size": "3072m", "taskmanager.memory.managed.fraction": "0.1", "taskmanager.numberOfTaskSlots": strconv.Itoa(c.parallelism),
		"execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": cluster.DefaultFS + "/bench/flink-checkpoints", "state.backend.type": c.backend[peer],
	})
	e.run[peer] = func(ctx context.Context, _ int64) (sample, error) { return k.measure(ctx, peer, c) }
	return e, err
}

// input writes the purchases, unless the topic has them from an earlier run.
func (k *kafkaCase) input(ctx context.Context) error {
	k.topic = fmt.Sprintf("bench-purchases-%d-%d-%d", k.spec.Seed, k.spec.Customers, k.spec.Records)
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.KafkaBootstrap), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, k.topic)
	if err != nil {
		return err
	}
	var there int64
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			there += o.Offset
		}
	})
	switch there {
	case k.spec.Records:
		return nil
	case 0:
	default: // of a run that was interrupted
		if _, err := adm.DeleteTopics(ctx, k.topic); err != nil {
			return err
		}
		if err := flink.Until(ctx, time.Minute, "the end of the old topic", func(ctx context.Context) (bool, error) {
			t, err := adm.ListTopics(ctx)
			return err == nil && !t.Has(k.topic), err
		}); err != nil {
			return err
		}
	}
	k.b.logf("  writing %d purchases to %s", k.spec.Records, k.topic)
	if _, err := adm.CreateTopic(ctx, int32(k.spec.Partitions), 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, k.topic); err != nil {
		return err
	}
	return k.kafka.Write(ctx, k.topic, k.spec, 0, k.spec.Records, 0)
}

// compute adds the purchases up, knowing nothing of the engines.
func (k *kafkaCase) compute() {
	k.want = map[window]sum{}
	size := k.spec.Window.Milliseconds()
	for n := range k.spec.Records {
		p := k.spec.Purchase(n)
		ms := p.At.UnixMilli()
		w := window{p.Customer, ms - ms%size}
		s := k.want[w]
		k.want[w] = sum{s.cents + p.Cents, s.count + 1}
	}
}

// measure submits the job, waits for its end and judges its output.
func (k *kafkaCase) measure(ctx context.Context, side string, c testCase) (sample, error) {
	k.run++
	out := fmt.Sprintf("bench-totals-%s-%d-%d", side, os.Getpid(), k.run)
	if err := k.kafka.CreateTopics(ctx, k.spec.Partitions, out); err != nil {
		return sample{}, err
	}
	defer k.drop(out)
	daemons, broker := proc.Self(k.daemons...), proc.Self(k.broker)
	s, err := k.job(ctx, side, c, out)
	if err != nil {
		return s, err
	}
	s.Broker = (proc.Self(k.broker) - broker).Seconds()
	s.Cluster += s.Broker + (proc.Self(k.daemons...) - daemons).Seconds()
	return s, k.judge(ctx, out)
}

func (k *kafkaCase) submit(ctx context.Context, side string, c testCase, name, out string) *exec.Cmd {
	args := []string{"--brokers", k.cluster.KafkaBootstrap, "--in", k.topic, "--out", out}
	if side == peer {
		return k.yarn.Submit(ctx, name, "thalweg.bench.Orders", []string{"-Dparallelism.default=" + strconv.Itoa(c.parallelism)}, append(args, "--window", "60", "--bounded", "true")...)
	}
	argv := []string{"run", "-t", "yarn-application", "-d", "-o", "json", "-p", strconv.Itoa(c.parallelism), "-Dyarn.application.name=" + name,
		"-Dexecution.checkpointing.interval=1 s", "-Dstate.backend.type=" + c.backend[thalweg], "-Drestart-strategy.type=none",
		"-Dtaskmanager.numberOfTaskSlots=" + strconv.Itoa(c.parallelism), filepath.Join(k.b.bin, "examples", "order-totals")}
	argv = append(argv, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(k.b.bin, "thalweg"), append(argv, "--group", out, "--txn-prefix", out+"-", "--window", "60s", "--out-of-orderness", "10s", "--bounded")...)
	cmd.Env = append(os.Environ(), k.cluster.Env()...)
	return cmd
}

// job runs the application to its end. Its wall time is from when all tasks run until the ResourceManager has it finished; so is its
// CPU time. What was used before is in Start.
func (k *kafkaCase) job(ctx context.Context, side string, c testCase, out string) (s sample, err error) {
	a, err := yarnapp.Launch(ctx, k.cluster, k.submit(ctx, side, c, out, out), out, kafkaWait)
	if err != nil {
		return s, err
	}
	app, u, err := a.End(ctx, kafkaWait)
	if err != nil {
		return s, err
	}
	s.Wall = float64(app.Finished-a.Began.UnixMilli()) / 1000
	s.Start = a.Start.Seconds()
	s.CPU, s.Peak = u.CPU.Seconds()-s.Start, float64(u.Peak)/(1<<20)
	s.Cluster = a.Client().Seconds()
	return s, nil
}

// judge reads the output as a reader of committed records does and compares it with the plain computation.
func (k *kafkaCase) judge(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.KafkaBootstrap), kgo.DisableClientMetrics(), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	seen := make(map[window]bool, len(k.want))
	var wrong []string
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read the results: %w (offsets still to come: %v; an open transaction holds them back)", err, left)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			var t eos.Total
			if err := json.Unmarshal(r.Value, &t); err != nil {
				wrong = append(wrong, fmt.Sprintf("%q: %v", r.Value, err))
				return
			}
			w := window{t.Customer, t.Start.UnixMilli()}
			switch {
			case seen[w]:
				wrong = append(wrong, fmt.Sprintf("twice: %s", r.Value))
			case k.want[w] != sum{t.Cents, t.Count}:
				wrong = append(wrong, fmt.Sprintf("%s, want %+v", r.Value, k.want[w]))
			}
			seen[w] = true
		})
	}
	if len(seen) < len(k.want) {
		wrong = append(wrong, fmt.Sprintf("%d of %d results are missing", len(k.want)-len(seen), len(k.want)))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("wrong results: %d faults, such as %s", len(wrong), strings.Join(wrong[:min(3, len(wrong))], "; "))
	}
	return nil
}

// drop removes a result topic; what stays only takes room.
func (k *kafkaCase) drop(topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.KafkaBootstrap), kgo.DisableClientMetrics())
	if err != nil {
		k.b.logf("%v", err)
		return
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).DeleteTopics(ctx, topic); err != nil {
		k.b.logf("remove %s: %v", topic, err)
	}
}
