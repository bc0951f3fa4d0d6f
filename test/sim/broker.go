package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

type txnState int

const (
	txnOpen txnState = iota
	txnCommitted
	txnAborted
)

// txn is a transaction: of one id, under one epoch. As with transaction.version 2 of Kafka (KIP-890), each takes an epoch of its own, so that a
// request that comes late cannot meet a later transaction.
type txn struct {
	id       string
	epoch    int
	state    txnState
	prepared int64 // checkpoint that it waits for, 0: still written
	promised bool  // a completed checkpoint holds it
	timedOut bool
}

func (t *txn) String() string { return fmt.Sprintf("%s@%d", t.id, t.epoch) }

type written struct {
	out Out
	txn *txn
}

// Broker is the simulated transactional log, of one partition.
type Broker struct {
	w     *World
	epoch map[string]int
	open  map[string]*txn
	txns  []*txn
	log   []written
}

var (
	errFenced = errors.New("a newer producer has taken the transactional id over")
	// errLost is what a committer finds of a transaction that timed out.
	errLost = errors.New("the transaction was aborted before it could be committed: its records are lost")
)

// lostError fails the job for good, as the Kafka sink's does.
type lostError struct{ error }

func (lostError) Fatal() bool { return true }

func newBroker(w *World) *Broker {
	return &Broker{w: w, epoch: map[string]int{}, open: map[string]*txn{}}
}

// init takes an id over: what is open under it is aborted.
func (b *Broker) init(id string) int {
	if t := b.open[id]; t != nil {
		b.end(t, txnAborted)
		b.w.sometimes("a transaction that a former writer left was aborted")
	}
	b.epoch[id]++
	return b.epoch[id]
}

func (b *Broker) end(t *txn, s txnState) {
	t.state = s
	delete(b.open, t.id)
	b.w.trace("broker: %s %s", t, [...]string{"open", "committed", "aborted"}[s])
}

func (b *Broker) begin(id string, epoch int) (*txn, error) {
	if b.epoch[id] != epoch || b.open[id] != nil {
		b.w.sometimes("a zombie's write was refused")
		return nil, fmt.Errorf("begin a transaction of %s with epoch %d: %w", id, epoch, errFenced)
	}
	t := &txn{id: id, epoch: epoch}
	b.open[id] = t
	b.txns = append(b.txns, t)
	return t, nil
}

func (b *Broker) write(t *txn, o Out) error {
	if t.state != txnOpen {
		b.w.sometimes("a zombie's write was refused")
		return fmt.Errorf("write to %s: %w", t, errFenced)
	}
	if t.prepared != 0 {
		return &misfit{fmt.Sprintf("transaction %s is written to after it was prepared", t)}
	}
	b.log = append(b.log, written{o, t})
	return nil
}

func (b *Broker) find(id string, epoch int) *txn {
	if i := slices.IndexFunc(b.txns, func(t *txn) bool { return t.id == id && t.epoch == epoch }); i >= 0 {
		return b.txns[i]
	}
	return nil
}

// commit is idempotent.
func (b *Broker) commit(id string, epoch int) error {
	t := b.find(id, epoch)
	if t == nil {
		return &misfit{fmt.Sprintf("a transaction that never was is committed: %s@%d", id, epoch)}
	}
	switch t.state {
	case txnCommitted:
		b.w.sometimes("a transaction was committed again, which changed nothing")
		return nil
	case txnAborted:
		if !t.timedOut {
			return &misfit{fmt.Sprintf("transaction %s of checkpoint %d is to be committed, and had been aborted by a successor", t, t.prepared)}
		}
		return lostError{fmt.Errorf("commit %s: %w", t, errLost)}
	}
	if !t.promised {
		return &misfit{fmt.Sprintf("transaction %s, prepared for checkpoint %d, is committed, and no completed checkpoint holds it", t, t.prepared)}
	}
	b.end(t, txnCommitted)
	b.epoch[id]++
	return nil
}

func (b *Broker) ids(prefix string) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(b.epoch)) {
		if strings.HasPrefix(id, prefix) {
			out = append(out, id)
		}
	}
	return out
}

// opened lists the transactions that are open, in the order of their begin.
func (b *Broker) opened() []*txn {
	return slices.DeleteFunc(slices.Clone(b.txns), func(t *txn) bool { return t.state != txnOpen })
}
