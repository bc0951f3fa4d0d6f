package kafka

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What happens after a failure, in order, in each subtask:
//
//  1. The committer ends its restored transactions with the stored producer id and epoch (txnAdmin.commit), whatever it takes to know what
//     became of them, and then initialises their ids unless they are as that end left them, which fences the former writer and aborts what
//     it began there since.
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

// endTxn ends c, with a commit or an abort.
func (a *txnAdmin) endTxn(ctx context.Context, c *committable, commit bool) error {
	cl, err := a.endClient(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = c.id, c.producerID, c.epoch, commit
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// commit ends c with a commit and returns nil when it is committed, by whomever; a *LostTransactionError when its records are lost, all or
// those of some topics. It asks until ctx ends.
func (a *txnAdmin) commit(ctx context.Context, c *committable) error {
	begin := time.Now()
	said := begin
	watch := topicWatch{a: a, c: c}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		done, err := a.tryCommit(ctx, c, &watch)
		if done {
			return err
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

// tryCommit is one attempt; done is false when it must be made again.
func (a *txnAdmin) tryCommit(ctx context.Context, c *committable, watch *topicWatch) (done bool, err error) {
	gone, reason, err := watch.gone(ctx)
	if err != nil {
		return false, err
	}
	if len(gone) > 0 {
		return a.settleGone(ctx, c, gone, reason)
	}
	if err = failpoint.Error("kafka/commit/before-end"); err == nil {
		err = a.endTxn(ctx, c, true)
		failpoint.At("kafka/commit/after-end")
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return true, fmt.Errorf("kafka: commit %s: %w: grant WRITE on the transactional id", c.describe(), err)
	case definite(err):
		// The coordinator has moved on: the log says how the transaction ended.
		o, oerr := a.outcome(ctx, c)
		switch o {
		case outcomeCommitted:
			a.log.Info().Str("transactional_id", c.id).Int64("checkpoint_id", c.checkpoint).AnErr("answer", err).Msg("transaction was committed before")
			return true, nil
		case outcomeAborted:
			return true, lostError(c, a.cfg.prefix)
		case outcomeUnknown:
			if oerr != nil {
				err = errors.Join(err, oerr)
			}
		}
	}
	return false, err
}

// settleGone settles a transaction some of whose topics are gone. It was well if it was committed while they were there; if not, what it wrote
// to the other topics is committed where the loss is accepted, and else left as it is for the operator to decide.
func (a *txnAdmin) settleGone(ctx context.Context, c *committable, gone []string, reason string) (done bool, err error) {
	state, err := a.coordinatorState(ctx, c)
	if err != nil && transient(err) || state == "PrepareCommit" || state == "PrepareAbort" {
		return false, errors.Join(err, fmt.Errorf("kafka: %s", reason))
	}
	rest := c.without(gone)
	o := ended(state)
	if o == outcomeUnknown && state != "Ongoing" { // the topics that are left may tell
		if o, err = a.markers(ctx, &rest); o == outcomeUnknown && err != nil && transient(err) {
			return false, err
		}
	}
	lost := lostError(c, a.cfg.prefix)
	switch o {
	case outcomeCommitted:
		a.log.Info().Str("transactional_id", c.id).Int64("checkpoint_id", c.checkpoint).Str("reason", reason).Msg("transaction was committed before its topic was deleted")
		return true, nil
	case outcomeAborted:
		return true, lost
	case outcomeUnknown:
	}
	lost.Deleted, lost.reason = gone, reason
	if a.cfg.acceptLost && len(rest.spans) > 0 {
		if err := a.endTxn(ctx, c, true); err != nil && !definite(err) {
			return false, err
		}
	}
	return true, lost
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

// fence initialises a transactional id: an open transaction is aborted, its producer is fenced.
func (a *txnAdmin) fence(ctx context.Context, id string) error {
	return a.initialise(ctx, id, a.cfg.txnTimeout)
}

// initialise is fence with the time-out that the id has from then on.
func (a *txnAdmin) initialise(ctx context.Context, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.connectTimeout+30*time.Second)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &id
		req.TransactionTimeoutMillis = int32(timeout.Milliseconds())
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

// release fences the id of a restored committable that was settled: its former writer may have begun another transaction under it. When the
// coordinator says that there is none, the id stays as it is, so that the coordinator can say so again after the next restart.
func (a *txnAdmin) release(ctx context.Context, c *committable) error {
	if state, err := a.coordinatorState(ctx, c); err == nil && ended(state) != outcomeUnknown {
		return nil
	}
	return a.fence(ctx, c.id)
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
