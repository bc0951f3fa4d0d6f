package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Transactions looks at the transactions of a Kafka cluster and ends strays: those whose job does not come back to end them itself, and which
// hold read_committed readers back until then. Close it. Safe for concurrent use.
//
// Source: Kafka's kafka-transactions.sh; the checks against what a snapshot prepared have no counterpart there.
type Transactions struct {
	cfg   *sinkConfig
	admin *txnAdmin
}

// ConnectTransactions connects with Brokers, ClientOptions and the like. Errors: brokers that do not answer within ConnectTimeout; options that are wrong.
func ConnectTransactions(ctx context.Context, log zerolog.Logger, opts ...Option) (*Transactions, error) {
	cfg := newSinkConfig(nil)
	for _, o := range opts {
		o.applySink(cfg)
	}
	if err := errors.Join(append(cfg.clientConfig.validate("client"), cfg.errs...)...); err != nil {
		return nil, err
	}
	cl, _, err := cfg.connect(ctx, log, "transactions")
	if err != nil {
		return nil, err
	}
	cl.Close()
	a, err := newTxnAdmin(cfg, log, 0)
	if err != nil {
		return nil, err
	}
	return &Transactions{cfg: cfg, admin: a}, nil
}

// Close closes the connections.
func (t *Transactions) Close() { t.admin.close() }

// Transaction is what the coordinator of a transactional id says of it.
type Transaction struct {
	ID string
	// State is Kafka's: Ongoing is open; PrepareCommit, PrepareAbort and PrepareEpochFence are being ended by the brokers; Empty, CompleteCommit and
	// CompleteAbort are ids in no transaction.
	State       string
	ProducerID  int64
	Epoch       int16
	Started     time.Time // zero outside of a transaction
	Timeout     time.Duration
	Coordinator int32            // broker id
	Partitions  []TopicPartition // in the transaction; ascending
}

// Open reports whether readers with isolation level read_committed wait for its end.
func (t *Transaction) Open() bool {
	switch t.State {
	case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
		return true
	}
	return false
}

// Selection says which transactional ids to look at: those of a sink with ExactlyOnce(Prefix), or single ones; all when both are empty.
type Selection struct {
	Prefix string
	IDs    []string
}

// describeAtOnce bounds the ids of one request.
const describeAtOnce = 500

// List describes the transactional ids that the brokers know, by id. Errors: what brokers or ids could not be asked; the list then holds the others.
func (t *Transactions) List(ctx context.Context, which Selection) ([]Transaction, error) {
	which.Prefix = idPrefix(which.Prefix)
	pattern := ""
	if which.Prefix != "" {
		pattern = "^" + regexp.QuoteMeta(which.Prefix) + "[0-9]+-[0-9]+$"
	}
	listed, err := t.admin.adm.ListTransactionsByTxPattern(ctx, nil, nil, pattern)
	if err != nil {
		return nil, fmt.Errorf("kafka: list transactions: %w (needs brokers of version 3.0 or later and DESCRIBE on the transactional ids)", err)
	}
	var ids []string
	for id := range listed {
		if _, _, ours := parseID(which.Prefix, id); which.Prefix != "" && !ours || len(which.IDs) > 0 && !slices.Contains(which.IDs, id) {
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var all []Transaction
	var errs []error
	for some := range slices.Chunk(ids, describeAtOnce) {
		described, err := t.admin.adm.DescribeTransactions(ctx, some...)
		if err != nil {
			errs = append(errs, fmt.Errorf("kafka: describe transactions: %w", err))
		}
		for _, d := range described.Sorted() {
			if errors.Is(d.Err, kerr.TransactionalIDNotFound) { // it was forgotten meanwhile
				continue
			}
			if d.Err != nil {
				errs = append(errs, fmt.Errorf("kafka: describe transactional id %q: %w", d.TxnID, d.Err))
				continue
			}
			x := Transaction{ID: d.TxnID, State: d.State, ProducerID: d.ProducerID, Epoch: d.ProducerEpoch, Timeout: time.Duration(d.TimeoutMillis) * time.Millisecond, Coordinator: d.Coordinator}
			if d.StartTimestamp > 0 && x.Open() {
				x.Started = time.UnixMilli(d.StartTimestamp)
			}
			for topic, partitions := range d.Topics {
				for p := range partitions {
					x.Partitions = append(x.Partitions, TopicPartition{topic, p})
				}
			}
			slices.SortFunc(x.Partitions, func(a, b TopicPartition) int {
				return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
			})
			all = append(all, x)
		}
	}
	return all, errors.Join(errs...)
}

// ErrMovedOn says that a transaction is not open any more, or that its id is in another transaction by now.
var ErrMovedOn = errors.New("the transaction has ended since it was listed, or its id is in another one by now: list it again")

// Abort aborts a transaction as List described it, and fences its producer, so that it cannot go on with it: its records are gone. Not for what a
// checkpoint has prepared that a job is to be restored from (see PreparedTransaction): the job could only report the loss. Errors: ErrMovedOn.
func (t *Transactions) Abort(ctx context.Context, x Transaction) error {
	if x.State != "Ongoing" {
		return fmt.Errorf("kafka: abort %q: %w (state %s)", x.ID, ErrMovedOn, x.State)
	}
	c := committable{id: x.ID, producerID: x.ProducerID, epoch: x.Epoch}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := t.admin.endTxn(ctx, &c, false)
		if err == nil {
			break
		}
		if definite(err) {
			if state, serr := t.admin.coordinatorState(ctx, &c); serr == nil && state == "CompleteAbort" {
				break // by an earlier try of ours, or by the brokers
			}
			return fmt.Errorf("kafka: abort %q: %w (%w)", x.ID, ErrMovedOn, err)
		}
		if !transient(err) || !pause(ctx, wait) {
			return fmt.Errorf("kafka: abort %q: %w", x.ID, err)
		}
	}
	timeout := x.Timeout
	if timeout <= 0 {
		timeout = t.cfg.txnTimeout
	}
	return t.admin.initialise(ctx, x.ID, timeout)
}

// PreparedTransaction is a transaction that a checkpoint or savepoint has prepared: it belongs to it, and is committed when the snapshot is complete.
type PreparedTransaction struct {
	ID         string
	ProducerID int64
	Epoch      int16
	Checkpoint int64
	Written    []Written
	c          committable
}

// Written is what a transaction wrote to a partition; records of others may be between First and Last.
type Written struct {
	TopicPartition
	First, Last int64 // offsets
}

// DecodePrepared reads an item that this package's sink has left in a snapshot (metadata.Prepared). Items of other sinks are an error.
func DecodePrepared(item []byte) (PreparedTransaction, error) {
	if json.Valid(item) {
		return PreparedTransaction{}, errCommittable
	}
	c, err := decodeCommittable(item)
	if err != nil {
		return PreparedTransaction{}, err
	}
	p := PreparedTransaction{ID: c.id, ProducerID: c.producerID, Epoch: c.epoch, Checkpoint: c.checkpoint, c: c}
	for _, s := range c.spans {
		p.Written = append(p.Written, Written{TopicPartition{s.topic, s.partition}, s.first, s.last})
	}
	return p, nil
}

// Is reports whether x is this transaction.
func (p *PreparedTransaction) Is(x Transaction) bool {
	return p.ID == x.ID && p.ProducerID == x.ProducerID && p.Epoch == x.Epoch && x.Open()
}

// Commit commits what a snapshot has prepared and reports whether it was committed already; either way all of it is. It asks until ctx ends. Other
// transactions are not touched, and a job that is restored from the snapshot later finds it committed. Errors: *LostTransactionError when the brokers
// have aborted it.
func (t *Transactions) Commit(ctx context.Context, p PreparedTransaction) (before bool, err error) {
	state, err := t.admin.coordinatorState(ctx, &p.c)
	before = err == nil && state != "Ongoing"
	return before, t.admin.commit(ctx, &p.c)
}
