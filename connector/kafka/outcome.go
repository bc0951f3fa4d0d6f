package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// outcome is what became of a transaction.
type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeCommitted
	outcomeAborted
)

// outcome finds the end of c in the log, or else asks the coordinator.
func (a *txnAdmin) outcome(ctx context.Context, c *committable) (outcome, error) {
	o, err := a.markers(ctx, c)
	if o != outcomeUnknown {
		return o, nil
	}
	state, serr := a.coordinatorState(ctx, c)
	return ended(state), errors.Join(err, serr)
}

// markers finds the end of c in the log: the first control batch of its producer after its last record, in any of its partitions.
func (a *txnAdmin) markers(ctx context.Context, c *committable) (outcome, error) {
	var errs []error
	for _, s := range c.spans {
		o, err := a.marker(ctx, c, s)
		if o != outcomeUnknown {
			return o, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return outcomeUnknown, errors.Join(errs...)
}

// coordinatorState is the coordinator's word for the very producer id and epoch of c, "" when it has another transaction under the id by now,
// or none.
//
// Source: Kafka's TransactionState: Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, and others.
func (a *txnAdmin) coordinatorState(ctx context.Context, c *committable) (string, error) {
	d, err := a.adm.DescribeTransactions(ctx, c.id)
	if err != nil {
		return "", err
	}
	t := d[c.id]
	if t.Err != nil && !errors.Is(t.Err, kerr.TransactionalIDNotFound) {
		return "", t.Err
	}
	// KIP-890 gives the producer the next epoch with the end of the transaction.
	if t.Err != nil || t.ProducerID != c.producerID || t.ProducerEpoch != c.epoch && t.ProducerEpoch != c.epoch+1 {
		return "", nil
	}
	return t.State, nil
}

// ended is what a state of the coordinator says of the transaction.
func ended(state string) outcome {
	switch state {
	case "CompleteCommit":
		return outcomeCommitted
	case "CompleteAbort":
		return outcomeAborted
	}
	return outcomeUnknown
}

// marker scans one partition for the end of c.
//
// Source: Kafka message format, control batches: key is version int16, type int16 (0 abort, 1 commit).
func (a *txnAdmin) marker(ctx context.Context, c *committable, s span) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.connectTimeout)
	defer cancel()
	ends, err := a.adm.ListEndOffsets(ctx, s.topic)
	if err != nil {
		return outcomeUnknown, err
	}
	end, ok := ends.Lookup(s.topic, s.partition)
	if !ok || end.Err != nil || end.Offset <= s.last+1 {
		return outcomeUnknown, end.Err
	}
	cl, err := a.cfg.newClient(a.log, "sink-marker", kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.FetchMaxPartitionBytes(256<<10),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {s.partition: kgo.NoResetOffset().At(s.last + 1)}}))
	if err != nil {
		return outcomeUnknown, err
	}
	defer cl.Close()
	for {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return outcomeUnknown, fmt.Errorf("kafka: scan %s-%d from offset %d for the end of %q: %w", s.topic, s.partition, s.last+1, c.id, ctx.Err())
		}
		for _, fe := range fs.Errors() {
			if errors.Is(fe.Err, kerr.OffsetOutOfRange) || !kerr.IsRetriable(fe.Err) {
				return outcomeUnknown, fe.Err
			}
		}
		found, next := outcomeUnknown, int64(0)
		fs.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if found != outcomeUnknown || !r.Attrs.IsControl() || r.ProducerID != c.producerID || len(r.Key) < 4 {
				return
			}
			switch binary.BigEndian.Uint16(r.Key[2:]) {
			case 0:
				found = outcomeAborted
			case 1:
				found = outcomeCommitted
			}
		})
		if found != outcomeUnknown || next >= end.Offset {
			return found, nil
		}
	}
}
