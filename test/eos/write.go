package eos

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is where topics are.
type Cluster struct {
	Brokers []string
	// Options are added to each client (TLS, SASL).
	Options []kgo.Opt
}

func (c Cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append(append([]kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.DisableClientMetrics()}, opts...), c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("eos: make client: %w", err)
	}
	return cl, nil
}

// CreateTopics makes topics that do not exist yet.
func (c Cluster) CreateTopics(ctx context.Context, partitions int, topics ...string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	md, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("eos: list topics: %w", err)
	}
	for _, t := range topics {
		if md.Has(t) {
			continue
		}
		if _, err := adm.CreateTopic(ctx, int32(partitions), -1, nil, t); err != nil {
			return fmt.Errorf("eos: create topic %s: %w", t, err)
		}
	}
	return nil
}

// Write writes records from to to (exclusive) of the spec, at most rate per second (0: as fast as it goes), and waits for the
// acknowledgements. Each record goes to its own partition. Its timestamp is the time of writing, not its event time: a broker that
// restarts forgets idempotent producers whose last record looks more than a day old (producer.id.expiration.ms, by the record's
// timestamp), and would take a batch that is sent again for a new one.
func (c Cluster) Write(ctx context.Context, topic string, s Spec, from, to int64, rate float64) error {
	if err := s.Validate(); err != nil {
		return err
	}
	w, err := c.newWriter(ctx, topic)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	begin := time.Now()
	for n := from; n < to; n++ {
		if rate > 0 && (n-from)%16 == 0 {
			due := begin.Add(time.Duration(float64(n-from) / rate * float64(time.Second)))
			if err := sleepUntil(ctx, due); err != nil {
				return err
			}
		}
		w.put(s.Partition(n), s.Purchase(n).Customer, s.Value(n))
	}
	return w.finish()
}

// WriteSentinels writes the records that close all windows, one per partition.
func (c Cluster) WriteSentinels(ctx context.Context, topic string, s Spec) error {
	w, err := c.newWriter(ctx, topic)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	for p := range s.Partitions {
		pu := s.Sentinel(p)
		b, _ := json.Marshal(pu)
		w.put(int32(p), pu.Customer, b)
	}
	return w.finish()
}

type writer struct {
	ctx   context.Context
	topic string
	cl    *kgo.Client
	mu    sync.Mutex
	err   error
}

func (c Cluster) newWriter(ctx context.Context, topic string) (*writer, error) {
	cl, err := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	return &writer{ctx: ctx, topic: topic, cl: cl}, nil
}

func (w *writer) put(partition int32, key string, value []byte) {
	w.cl.Produce(w.ctx, &kgo.Record{Topic: w.topic, Partition: partition, Key: []byte(key), Value: value}, func(_ *kgo.Record, err error) {
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.err == nil {
				w.err = fmt.Errorf("eos: write to %s: %w", w.topic, err)
			}
		}
	})
}

func (w *writer) finish() error {
	if err := w.cl.Flush(w.ctx); err != nil {
		return fmt.Errorf("eos: flush %s: %w", w.topic, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func sleepUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
