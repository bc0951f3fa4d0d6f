package eos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// WriteResults writes, in transactions of batch results, the right results of a spec to a topic: what a faultless job would leave behind. It is
// the base of the checker's own test. The first transaction is aborted and written again, as after a failure.
func (c Cluster) WriteResults(ctx context.Context, topic, transactionalID string, s Spec, partitions, batch int) error {
	cl, err := c.client(kgo.TransactionalID(transactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer cl.Close()
	totals := reference(s)
	// The topic must be known to the client before its first transaction, which franz-go 1.22.3 may otherwise abort in place of a commit.
	if err := cl.BeginTransaction(); err != nil {
		return fmt.Errorf("eos: begin: %w", err)
	}
	var warm []*kgo.Record
	for p := range partitions {
		warm = append(warm, &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte("aborted"), Value: []byte("aborted")})
	}
	if err := cl.ProduceSync(ctx, warm...).FirstErr(); err != nil {
		return fmt.Errorf("eos: write: %w", err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return fmt.Errorf("eos: abort: %w", err)
	}
	for part := range slices.Chunk(totals, batch) {
		if err := cl.BeginTransaction(); err != nil {
			return fmt.Errorf("eos: begin: %w", err)
		}
		var recs []*kgo.Record
		for _, t := range part {
			b, _ := json.Marshal(t)
			h := fnv.New32a()
			_, _ = h.Write([]byte(t.Customer))
			recs = append(recs, &kgo.Record{Topic: topic, Partition: int32(h.Sum32() % uint32(partitions)), Key: []byte(t.Customer), Value: b, Timestamp: t.End})
		}
		if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
			return fmt.Errorf("eos: write: %w", err)
		}
		if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return fmt.Errorf("eos: commit: %w", err)
		}
	}
	return nil
}

// WriteDeadLetters writes each malformed record of a spec, whose input was written once and in order, as a dead letter, the first one twice.
func (c Cluster) WriteDeadLetters(ctx context.Context, topic string, s Spec) error {
	cl, err := c.client(kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	var recs []*kgo.Record
	for n := range s.Records {
		if !s.Malformed(n) {
			continue
		}
		r := kgo.Record{Value: s.Value(n), Headers: []kgo.RecordHeader{
			{Key: "topic", Value: []byte("input")},
			{Key: "partition", Value: strconv.AppendInt(nil, int64(s.Partition(n)), 10)},
			{Key: "offset", Value: strconv.AppendInt(nil, n/int64(s.Partitions), 10)},
			{Key: "error", Value: []byte("no JSON")},
		}}
		if len(recs) == 0 {
			again := r
			recs = append(recs, &again)
		}
		recs = append(recs, &r)
	}
	if err := cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		return fmt.Errorf("eos: write dead letters: %w", err)
	}
	return nil
}

// Results is the number of results that a spec has.
func Results(s Spec) int { return len(reference(s)) }

// reference computes the results of a spec in the order of their windows.
func reference(s Spec) []Total {
	size := s.Window.Milliseconds()
	sums := map[window]*Total{}
	for n := range s.Records {
		if s.Malformed(n) {
			continue
		}
		p := s.Purchase(n)
		ms := p.At.UnixMilli()
		w := window{p.Customer, ms - ms%size}
		t := sums[w]
		if t == nil {
			begin := time.UnixMilli(w.start).UTC()
			t = &Total{Customer: p.Customer, Start: begin, End: begin.Add(s.Window)}
			sums[w] = t
		}
		t.Cents += p.Cents
		t.Count++
	}
	out := make([]Total, 0, len(sums))
	for _, t := range sums {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Total) int {
		return cmp.Or(a.Start.Compare(b.Start), bytes.Compare([]byte(a.Customer), []byte(b.Customer)))
	})
	return out
}
