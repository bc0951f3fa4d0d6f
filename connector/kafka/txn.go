package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The life of a transaction.
//
//	free --first record of an interval--> open --barrier: flush, PrepareCommit--> prepared --checkpoint complete: Commit--> committed
//	committed --a later checkpoint complete that does not hold it--> free
//
// A slot is a transactional id with a client of its own. While one is prepared, the next interval's records go to another slot. A committed
// one stays untouched until no restart can ask what became of it (see topics.go). So three slots suffice as long as checkpoints complete
// before the next begins, and two clients, since a committed slot has none; each further checkpoint that is under way has one prepared.
//
// The client only begins and fills a transaction; it is ended by EndTxn with the producer id and epoch that were noted at the barrier
// (txnAdmin.commit), after which the client is replaced. That has two reasons. A new client initialises the id, which makes a new epoch: a late
// or repeated end of the old transaction can never end a new one, with and without KIP-890. And franz-go 1.22.3 may not know that a
// transaction holds records: when the topic is new to the client, a batch can be acknowledged before the topic's partitions are stored where
// Client.EndTransaction looks for them; it then aborts (or does nothing) and reports success.
//
// Threads: the writer (task goroutine) moves free -> open -> prepared, the committer (its own goroutine) prepared -> committed -> free.

type slotState int

const (
	slotFree slotState = iota
	slotOpen
	slotPrepared
	slotCommitted
)

type slot struct {
	index int
	id    string
	pool  *txnPool
	cl    *kgo.Client // nil: to be made

	// Guarded by pool.mu, but for reads of prepared and seq by who moves the slot on.
	state      slotState
	seq        uint64
	prepared   committable
	begun      time.Time // of the open or prepared transaction
	committing bool      // its checkpoint is complete
	warm       bool      // free, with a client that is initialised
	told       bool      // committed, and no later checkpoint has it in its state
	absent     int64     // the first of those, 0 before its barrier

	mu    sync.Mutex // guards what acknowledgements write
	spans []span
	last  int // index of the span of the last acknowledgement
	err   error
}

// txnPool are the transactional ids of one subtask attempt, shared by its writer and its committer.
type txnPool struct {
	cfg      *sinkConfig
	log      zerolog.Logger
	subtask  int
	excluded map[string]bool // ids of restored committables: not used in this attempt
	admin    *txnAdmin
	lost     connector.Counter

	mu     sync.Mutex
	slots  []*slot
	topics map[string]topicID // as learnt before the first record went there; zero: not known
	refs   int
}

func transactionalID(prefix string, subtask, slot int) string {
	return fmt.Sprintf("%s%d-%d", prefix, subtask, slot)
}

func newTxnPool(cfg *sinkConfig, ctx connector.SinkContext) (*txnPool, error) {
	p := &txnPool{
		cfg: cfg, log: ctx.Logger.With().Int("subtask", ctx.Subtask).Logger(), subtask: ctx.Subtask, excluded: map[string]bool{},
		topics: map[string]topicID{},
		lost:   counter(ctx.Metrics, "numTransactionsLost"),
	}
	for _, b := range ctx.AllCommittables {
		c, err := decodeCommittable(b)
		if err != nil {
			return nil, err
		}
		p.excluded[c.id] = true
	}
	var err error
	p.admin, err = newTxnAdmin(cfg, p.log, ctx.Subtask)
	return p, err
}

// spareClients is how many free slots keep a client: as many as a job needs whose checkpoints complete. After checkpoints that failed in a
// row there are more slots, which stay free to be used, without a client.
const spareClients = 2

// take returns a slot for a new transaction, with a client whose producer id is initialised: what used the id before is fenced.
func (p *txnPool) take(ctx context.Context) (*slot, error) {
	p.mu.Lock()
	var s *slot
	for _, c := range p.slots {
		if c.state == slotFree && (s == nil || c.warm && !s.warm) {
			s = c
		}
	}
	if s == nil {
		index := 0
		if n := len(p.slots); n > 0 {
			index = p.slots[n-1].index + 1
		}
		for p.excluded[transactionalID(p.cfg.prefix, p.subtask, index)] {
			index++
		}
		s = &slot{index: index, id: transactionalID(p.cfg.prefix, p.subtask, index), pool: p}
		p.slots = append(p.slots, s)
	}
	s.state, s.warm = slotOpen, false
	p.mu.Unlock()
	if err := s.ensure(ctx); err != nil {
		p.giveBack(s)
		return nil, err
	}
	return s, nil
}

// giveBack frees a slot whose client, if it has one, has not begun a transaction.
func (p *txnPool) giveBack(s *slot) {
	p.mu.Lock()
	s.state, s.committing, s.warm = slotFree, false, s.cl != nil
	p.mu.Unlock()
}

// enough reports whether no further free slot needs a client.
func (p *txnPool) enough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	warm := 0
	for _, s := range p.slots {
		if s.warm {
			warm++
		}
	}
	return warm >= spareClients
}

// overdue is an error when a transaction waits for its checkpoint for so long that the brokers may abort it before a checkpoint completes
// that holds it. Such a checkpoint must not complete: the records would be lost, whereas the restart before it writes them again. The
// present interval's transaction may use nearly all of its time, since the interval may be that long; what a failed checkpoint left may not.
func (p *txnPool) overdue() error {
	limits := [...]time.Duration{slotOpen: p.cfg.txnTimeout - min(p.cfg.txnTimeout/10, 5*time.Second), slotPrepared: p.cfg.txnTimeout / 10 * 9}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state == slotFree || s.state == slotCommitted || s.committing {
			continue
		}
		if age := p.cfg.now().Sub(s.begun); age > limits[s.state] {
			return fmt.Errorf("kafka: transaction %q is open for %v without a completed checkpoint, and kafka.TransactionTimeout is %v: the brokers would abort it and its records be lost, "+
				"so the job goes back to its last checkpoint and writes them again; see why checkpoints do not complete, or raise kafka.TransactionTimeout", s.id, age.Round(time.Second), p.cfg.txnTimeout)
		}
	}
	return nil
}

// ensure makes the client when there is none.
func (s *slot) ensure(ctx context.Context) error {
	if s.cl != nil {
		return nil
	}
	cfg := s.pool.cfg
	cl, err := cfg.newClient(s.pool.log, "sink-"+s.id, append(producerOptions(cfg), kgo.TransactionalID(s.id), kgo.TransactionTimeout(cfg.txnTimeout))...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.connectTimeout)
	defer cancel()
	for {
		if _, _, err = cl.ProducerID(ctx); err == nil {
			s.cl = cl
			return nil
		}
		if !transient(err) || !pause(ctx, 100*time.Millisecond) {
			cl.Close()
			return fmt.Errorf("kafka: initialise transactional id %q: %w", s.id, cfg.blame(err))
		}
	}
}

// discard drops the client; the next use makes another one, whose initialisation gets a new epoch.
func (s *slot) discard() {
	if s.cl != nil {
		s.cl.Close()
		s.cl = nil
	}
}

// blame adds to an error that says that a producer was fenced, or that its transaction is not open any more, what that means.
func (c *sinkConfig) blame(err error) error {
	fenced := func(e error) bool { return errors.Is(err, e) }
	if c.prefix != "" && slices.ContainsFunc([]error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState}, fenced) {
		return fmt.Errorf("%w: another job, or another run of this one, uses the transactional id prefix %q too and has taken the id over: end it, or give each job a prefix of its own "+
			"(or the transaction was open for longer than kafka.TransactionTimeout, %v)", err, c.prefix, c.txnTimeout)
	}
	return advise(err)
}

// advise adds to the broker's refusal of a record what to do, and whether writing it again can help.
func advise(err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return lastingError{fmt.Errorf("%w: raise the topic's max.message.bytes, or write smaller records", err)}
	case errors.Is(err, kerr.InvalidRecord):
		return lastingError{fmt.Errorf("%w: the topic does not take such records (a compacted one wants keys, kafka.KeyFunc)", err)}
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w: it was deleted: create it again, with as many partitions", err)
	case errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%w: the topic was deleted and created again while the job wrote to it; the next start writes to the new one", err)
	}
	return err
}

func (s *slot) begin() error {
	s.mu.Lock()
	s.spans, s.last, s.err = nil, 0, nil
	s.mu.Unlock()
	s.pool.mu.Lock()
	s.seq++
	s.begun = s.pool.cfg.now()
	s.pool.mu.Unlock()
	failpoint.At("kafka/begin")
	if err := s.cl.BeginTransaction(); err != nil {
		return fmt.Errorf("kafka: begin transaction %q: %w", s.id, s.pool.cfg.blame(err))
	}
	return nil
}

// acked notes an acknowledged record. Called on the client's goroutine.
func (s *slot) acked(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last < len(s.spans) {
		if sp := &s.spans[s.last]; sp.partition == r.Partition && sp.topic == r.Topic {
			sp.last = max(sp.last, r.Offset)
			sp.first = min(sp.first, r.Offset)
			return
		}
	}
	for i := range s.spans {
		if sp := &s.spans[i]; sp.partition == r.Partition && sp.topic == r.Topic {
			sp.last = max(sp.last, r.Offset)
			sp.first = min(sp.first, r.Offset)
			s.last = i
			return
		}
	}
	s.spans = append(s.spans, span{topic: r.Topic, partition: r.Partition, first: r.Offset, last: r.Offset})
	s.last = len(s.spans) - 1
}

func (s *slot) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *slot) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// prepare ends the input of the open transaction; everything must have been flushed.
func (s *slot) prepare(ctx context.Context, checkpointID int64) (committable, error) {
	pid, epoch, err := s.cl.ProducerID(ctx)
	if err != nil {
		return committable{}, fmt.Errorf("kafka: prepare transaction %q: %w", s.id, s.pool.cfg.blame(err))
	}
	s.mu.Lock()
	c := committable{id: s.id, producerID: pid, epoch: epoch, seq: s.seq, checkpoint: checkpointID, spans: s.spans}
	s.mu.Unlock()
	if err := s.pool.identify(ctx, &c); err != nil {
		return committable{}, err
	}
	s.pool.mu.Lock()
	s.prepared, s.state = c, slotPrepared
	s.pool.mu.Unlock()
	return c, nil
}

// find returns the slot in which c is prepared, nil when this attempt does not hold it (any more).
func (p *txnPool) find(c *committable) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state == slotPrepared && s.id == c.id && s.prepared.producerID == c.producerID && s.prepared.epoch == c.epoch && s.prepared.seq == c.seq {
			return s
		}
	}
	return nil
}

// commit commits a prepared slot, and frees those that its checkpoint makes free.
func (s *slot) commit(ctx context.Context) error {
	p := s.pool
	p.mu.Lock()
	s.committing = true
	p.mu.Unlock()
	if err := p.settle(ctx, &s.prepared); err != nil {
		return err
	}
	s.discard()
	p.mu.Lock()
	s.state, s.committing, s.told, s.absent = slotCommitted, false, false, 0
	p.mu.Unlock()
	failpoint.At("kafka/commit/noted")
	p.thaw(ctx, s.prepared.checkpoint)
	return nil
}

// committed says that checkpoints whose barriers come from now on do not hold the committables of checkpoint and those before it.
func (p *txnPool) committed(checkpoint int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state == slotCommitted && s.prepared.checkpoint <= checkpoint {
			s.told = true
		}
	}
}

// barrier says that a checkpoint is being taken.
func (p *txnPool) barrier(checkpoint int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.state == slotCommitted && s.told && s.absent == 0 {
			s.absent = checkpoint
		}
	}
}

// thaw frees the committed slots that a completed checkpoint does not hold: no restart asks for them any more.
func (p *txnPool) thaw(ctx context.Context, complete int64) {
	p.mu.Lock()
	var free []*slot
	for _, s := range p.slots {
		if s.state == slotCommitted && s.absent > 0 && s.absent <= complete {
			free = append(free, s)
		}
	}
	p.mu.Unlock()
	for _, s := range free {
		if !p.enough() {
			if err := s.ensure(ctx); err != nil && ctx.Err() == nil {
				// Not this commit's failure; the next use tries again and reports it.
				p.log.Warn().Err(err).Str("transactional_id", s.id).Msg("transactional id was not initialised again; its next use does it")
			}
		}
		p.giveBack(s)
	}
}

// settle finds out what became of a transaction, applies the policy for a lost one, and returns nil when the job may go on.
func (p *txnPool) settle(ctx context.Context, c *committable) error {
	ctx, cancel := context.WithTimeout(ctx, max(p.cfg.txnTimeout, p.cfg.connectTimeout)+p.cfg.connectTimeout)
	defer cancel()
	err := p.admin.commit(ctx, c)
	var lost *LostTransactionError
	if errors.As(err, &lost) && p.cfg.acceptLost {
		p.log.Error().Err(err).Str("transactional_id", c.id).Msg("a transaction is lost; going on, as set")
		p.lost.Add(1)
		return nil
	}
	return err
}

// abortOpen aborts the open transaction of a writer that ends, so that readers need not wait for its time-out. Best effort: the next
// attempt fences it anyway.
func (s *slot) abortOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.cl.AbortBufferedRecords(ctx)
	if err == nil {
		err = s.cl.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil {
		s.pool.log.Info().Err(err).Str("transactional_id", s.id).Msg("open transaction was not aborted at the end of the writer; the next attempt does it")
	}
	s.discard()
	s.pool.giveBack(s)
}

func (p *txnPool) retain() {
	p.mu.Lock()
	p.refs++
	p.mu.Unlock()
}

// release closes everything when both the writer and the committer are gone. Prepared transactions stay as they are.
func (p *txnPool) release() {
	p.mu.Lock()
	p.refs--
	last := p.refs == 0
	p.mu.Unlock()
	if !last {
		return
	}
	for _, s := range p.slots {
		s.discard()
	}
	p.admin.close()
}
