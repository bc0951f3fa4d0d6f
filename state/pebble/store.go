package pebble

import (
	"errors"
	"io"
	"sync/atomic"

	pdb "github.com/cockroachdb/pebble/v2"
)

// Tables and timers are generic: they are compiled in each program, once for each of its types, with every generic type that is reachable through
// the fields and methods of what they refer to. Pebble's own types reach hundreds, so nothing that tables see (Backend, set, frozen) may name them:
// they go through the following. It made up a third of the time that a program with state took to compile.

// store is a *pdb.DB as tables see it.
type store interface {
	// Get returns errNotFound when there is none; the value is valid until the closer is closed.
	Get(key []byte) (value []byte, closer io.Closer, err error)
	// iter goes over [lower, upper); nil is no bound.
	iter(lower, upper []byte) (iterator, error)
	newBatch() batch
	// newBatchOf is newBatch with room for so many bytes.
	newBatchOf(size int) batch
	// write applies a batch, whatever the store lags behind; Backend.apply waits.
	write(x batch) error
	Close() error
}

// batch is a *pdb.Batch.
type batch interface {
	Set(key, value []byte, _ *pdb.WriteOptions) error
	Delete(key []byte, _ *pdb.WriteOptions) error
	DeleteRange(start, end []byte, _ *pdb.WriteOptions) error
	Len() int
	Empty() bool
	Reset()
	Close() error
}

// iterator is a *pdb.Iterator.
type iterator interface {
	SetBounds(lower, upper []byte)
	First() bool
	Next() bool
	SeekGE(key []byte) bool
	Key() []byte
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

var errNotFound = pdb.ErrNotFound

// pebbleStore is a store on Pebble.
type pebbleStore struct {
	*pdb.DB
	writes atomic.Int64 // batches written
	finder finder
}

func (s *pebbleStore) iter(lower, upper []byte) (iterator, error) {
	return s.NewIter(&pdb.IterOptions{LowerBound: lower, UpperBound: upper})
}

func (s *pebbleStore) newBatch() batch           { return s.NewBatch() }
func (s *pebbleStore) newBatchOf(size int) batch { return s.NewBatchWithSize(size) }

func (s *pebbleStore) write(x batch) error {
	b := x.(*pdb.Batch)
	s.finder.written(b)
	err := s.Apply(b, pdb.NoSync)
	s.writes.Add(1)
	return err
}

// Get implements store. It is for the task's goroutine alone, as iter is not.
func (s *pebbleStore) Get(key []byte) ([]byte, io.Closer, error) { return s.finder.get(s, key) }

func (s *pebbleStore) Close() error { return errors.Join(s.finder.drop(), s.DB.Close()) }

// raw is the store itself. It is no method: see above.
func raw(b *Backend) *pdb.DB { return b.db.(*pebbleStore).DB }
