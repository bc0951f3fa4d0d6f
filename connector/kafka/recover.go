package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What happens after a failure, in order, in each subtask:
//
//  1. The committer ends its restored transactions with the stored producer id and epoch (txnAdmin.commit), whatever it takes to know what
//     became of them, and then initialises their ids, which fences the former writer and aborts what it began there since.
//  2. The writer initialises every other id with the prefix that the brokers know and that falls to this subtask (its own former ids, and
//     those of former subtasks that do not exist any more, modulo the parallelism): open transactions of the former run are aborted, its
//     writers are fenced. Ids of restored committables of any subtask are left alone: their committer does both. Live siblings
//     are left alone: an id below the parallelism falls to its own subtask.
//
// So no id is touched by two subtasks, and nothing that must be committed is aborted, whatever the order of the subtasks.

// txnAdmin asks the brokers about transactions.
type txnAdmin struct {
	cfg *sinkConfig
	log zerolog.Logger
	cl  *kgo.Client
	adm *kadm.Client

	mu     sync.Mutex
	oldEnd *kgo.Client // for clusters below transaction.version 2: EndTxn up to version 4
	known  bool
	tv2    bool
}

func newTxnAdmin(cfg *sinkConfig, log zerolog.Logger, subtask int) (*txnAdmin, error) {
	cl, err := cfg.newClient(log, fmt.Sprintf("sink-admin-%d", subtask), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	return &txnAdmin{cfg: cfg, log: log, cl: cl, adm: kadm.NewClient(cl)}, nil
}

func (a *txnAdmin) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cl.Close()
	if a.oldEnd != nil {
		a.oldEnd.Close()
	}
}

// transactionVersion2 reports whether the cluster has finalised transaction.version 2.
//
// Source: KIP-890; ApiVersions v3 FinalizedFeatures.
func transactionVersion2(ctx context.Context, cl *kgo.Client) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		return false, err
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

// endClient is the client for EndTxn: version 5 must only be sent where transaction.version is 2.
func (a *txnAdmin) endClient(ctx context.Context) (*kgo.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		tv2, err := transactionVersion2(ctx, a.cl)
		if err != nil {
			return nil, err
		}
		a.known, a.tv2 = true, tv2
	}
	if a.tv2 {
		return a.cl, nil
	}
	if a.oldEnd == nil {
		v := kversion.Stable()
		v.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
		cl, err := a.cfg.newClient(a.log, "sink-end", kgo.MaxVersions(v), kgo.RetryTimeout(10*time.Second))
		if err != nil {
			return nil, err
		}
		a.oldEnd = cl
	}
	return a.oldEnd, nil
}

func (a *txnAdmin) endTxn(ctx context.Context, c *committable) error {
	cl, err := a.endClient(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = c.id, c.producerID, c.epoch, true
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// outcome is what became of a transaction.
type outcome int

const (
	outcomeUnknown outcome = iota
	outcomeCommitted
	outcomeAborted
)

// commit ends c with a commit and returns nil when it is committed, by whomever; a *LostTransactionError when it was aborted. It asks until
// ctx ends.
func (a *txnAdmin) commit(ctx context.Context, c *committable) error {
	begin := time.Now()
	said := begin
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := a.endTxn(ctx, c)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			return fmt.Errorf("kafka: commit %s: %w: grant WRITE on the transactional id", c.describe(), err)
		case definite(err):
			// The coordinator has moved on: the log says how the transaction ended.
			o, oerr := a.outcome(ctx, c)
			switch {
			case o == outcomeCommitted:
				a.log.Info().Str("transactional_id", c.id).Int64("checkpoint_id", c.checkpoint).AnErr("answer", err).Msg("transaction was committed before")
				return nil
			case o == outcomeAborted:
				return lostError(c, a.cfg.prefix)
			}
			if oerr != nil {
				err = errors.Join(err, oerr)
			}
		}
		if now := time.Now(); now.Sub(said) >= 5*time.Second && ctx.Err() == nil {
			said = now
			a.log.Warn().Err(err).Str("transactional_id", c.id).Int64("checkpoint_id", c.checkpoint).Dur("dur", now.Sub(begin)).
				Msg("a transaction of a completed checkpoint is not committed yet; trying again")
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("kafka: commit %s: what became of it could not be found out: %w", c.describe(), a.cfg.blame(err))
		}
	}
}

// definite reports whether the coordinator refused to end the transaction because it is not (any more) the current one of its id.
func definite(err error) bool {
	for _, e := range []*kerr.Error{
		kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.TransactionalIDNotFound,
		kerr.TransactionAbortable,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// outcome finds the end of c in the log: the first control batch of its producer after its last record, in any of its partitions. Where the
// log does not reach back that far, the coordinator's word for the very same producer id and epoch counts.
func (a *txnAdmin) outcome(ctx context.Context, c *committable) (outcome, error) {
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
	d, err := a.adm.DescribeTransactions(ctx, c.id)
	if err == nil {
		t := d[c.id]
		// KIP-890 gives the producer the next epoch with the end of the transaction.
		if t.Err == nil && t.ProducerID == c.producerID && (t.ProducerEpoch == c.epoch || t.ProducerEpoch == c.epoch+1) {
			switch t.State {
			case "CompleteCommit":
				return outcomeCommitted, nil
			case "CompleteAbort":
				return outcomeAborted, nil
			}
		}
	} else {
		errs = append(errs, err)
	}
	return outcomeUnknown, errors.Join(errs...)
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

// fence initialises a transactional id: an open transaction is aborted, its producer is fenced.
func (a *txnAdmin) fence(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.connectTimeout+30*time.Second)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &id
		req.TransactionTimeoutMillis = int32(a.cfg.txnTimeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, a.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			return nil
		}
		if !transient(err) && !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) || !pause(ctx, wait) {
			return fmt.Errorf("kafka: abort what is open under transactional id %q: %w", id, a.cfg.blame(err))
		}
	}
}

// parseID splits an id of this package into subtask and slot.
func parseID(prefix, id string) (subtask, slot int, ok bool) {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok {
		return 0, 0, false
	}
	a, b, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, 0, false
	}
	subtask, err1 := strconv.Atoi(a)
	slot, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || a != strconv.Itoa(subtask) || b != strconv.Itoa(slot) {
		return 0, 0, false
	}
	return subtask, slot, true
}

// cleanUp fences all ids with the prefix for which mine is true.
func (a *txnAdmin) cleanUp(ctx context.Context, prefix string, mine func(subtask int, id string) bool) error {
	lctx, cancel := context.WithTimeout(ctx, a.cfg.connectTimeout)
	defer cancel()
	var listed kadm.ListedTransactions
	for {
		var err error
		listed, err = a.adm.ListTransactionsByTxPattern(lctx, nil, nil, "^"+regexp.QuoteMeta(prefix)+"[0-9]+-[0-9]+$")
		if err == nil {
			break
		}
		if !transient(err) || !pause(lctx, 100*time.Millisecond) {
			return fmt.Errorf("kafka: list transactions with prefix %q: %w (needs brokers of version 3.0 or later and DESCRIBE on the transactional ids)", prefix, err)
		}
	}
	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
		sem  = make(chan struct{}, 8)
		open int
	)
	for id, t := range listed {
		subtask, _, ok := parseID(prefix, id)
		if !ok || !mine(subtask, id) || t.State == "Dead" {
			continue
		}
		if t.State == "Ongoing" {
			open++
		}
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			if err := a.fence(ctx, id); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if open > 0 {
		a.log.Info().Int("transactions", open).Str("prefix", prefix).Msg("open transactions of a former run were aborted")
	}
	return errors.Join(errs...)
}

// transient reports whether trying again may help.
func transient(err error) bool {
	if errors.Is(err, kerr.ConcurrentTransactions) || kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) {
		return true
	}
	var ke *kerr.Error
	return !errors.As(err, &ke) && !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed)
}

// pause waits for d and reports false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
