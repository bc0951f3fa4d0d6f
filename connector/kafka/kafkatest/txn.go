package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TransactionalIDs are the ids with a prefix that the brokers know, with their states.
func (c *Cluster) TransactionalIDs(ctx context.Context, prefix string) (map[string]string, error) {
	l, err := c.adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for id, t := range l {
		if strings.HasPrefix(id, prefix) {
			ids[id] = t.State
		}
	}
	return ids, nil
}

// OpenTransactions are the ids with a prefix that are in a transaction. Ends that are being written are waited for.
func (c *Cluster) OpenTransactions(ctx context.Context, prefix string) ([]string, error) {
	for {
		ids, err := c.TransactionalIDs(ctx, prefix)
		if err != nil {
			return nil, err
		}
		var open []string
		ending := false
		for id, st := range ids {
			switch st {
			case "Ongoing":
				open = append(open, id)
			case "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
				ending = true
			}
		}
		if !ending {
			return open, nil
		}
		if !wait(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// StableLag is the number of offsets between the last stable offset and the end, over all partitions.
func (c *Cluster) StableLag(ctx context.Context, topic string) (int64, error) {
	ends, err := c.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	stable, err := c.adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var lag int64
	for p, e := range ends[topic] {
		s, _ := stable.Lookup(topic, p)
		lag += e.Offset - s.Offset
	}
	return lag, nil
}

// AbortTransactions aborts open transactions with a prefix as a broker does after their time-out.
func (c *Cluster) AbortTransactions(ctx context.Context, prefix string) error {
	open, err := c.OpenTransactions(ctx, prefix)
	if err != nil {
		return err
	}
	for _, id := range open {
		for {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
			resp, err := req.RequestWith(ctx, c.cl)
			if err != nil {
				return err
			}
			err = kerr.ErrorForCode(resp.ErrorCode)
			if err == nil {
				break
			}
			if !errors.Is(err, kerr.ConcurrentTransactions) || !wait(ctx, 10*time.Millisecond) {
				return fmt.Errorf("abort %s: %w", id, err)
			}
		}
	}
	return nil
}

// Observe calls fn with the version of each request of a kind that the embedded broker gets.
func Observe(f *kfake.Cluster, key int16, fn func(version int16)) {
	f.ControlKey(key, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		fn(req.GetVersion())
		return nil, nil, false
	})
}

// Initialise initialises a transactional id, as each new producer does, and returns the producer id and epoch that it gets.
func (c *Cluster) Initialise(tb testing.TB, id string) (producer int64, epoch int16) {
	tb.Helper()
	for {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
		resp, err := req.RequestWith(tb.Context(), c.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			return resp.ProducerID, resp.ProducerEpoch
		}
		if !kerr.IsRetriable(err) && !errors.Is(err, kerr.ConcurrentTransactions) || !wait(tb.Context(), 10*time.Millisecond) {
			tb.Fatalf("initialise %s: %v", id, err)
		}
	}
}
