package pebble

import (
	"io"
	"sync/atomic"

	pdb "github.com/cockroachdb/pebble/v2"
)

// finder looks single keys up. Pebble's Get does not use the Bloom filters of the last level, which holds most of the state: each key that is
// not there costs a block from disk, and most keys of a state that grows are not there when they are looked for first. An iterator may use
// them; it sees the store as it was when it was made, so it is made again after each write, which evictions make seldom: many entries at a
// time. It finds keys that are there no faster, and the filters take memory from the blocks, so this is done only while misses are many.
//
// All but written is for the task's goroutine.
type finder struct {
	every       int   // lookups between two decisions
	cache       int64 // bytes of the block cache
	gets, fails int   // since the last decision
	filtered    bool

	it   *pdb.Iterator
	at   int64 // writes that it sees
	used int

	entries, bytes atomic.Int64 // written
}

const (
	lookupsPerDecision = 4096
	// missShare of the lookups, one of so many, makes the filters worth their memory.
	missShare = 8
	// filterShare is the part of the block cache, one of so many, that the filters may take.
	filterShare = 3
	filterBits  = 10 // per key
	// maxLookups bounds the life of an iterator, which keeps the files and memtables that it sees.
	maxLookups = 1 << 14
)

type nothing struct{}

func (nothing) Close() error { return nil }

func (f *finder) get(s *pebbleStore, key []byte) (v []byte, c io.Closer, err error) {
	if f.gets++; f.gets >= f.every {
		if err := f.decide(s); err != nil {
			return nil, nil, err
		}
	}
	if !f.filtered {
		if v, c, err = s.DB.Get(key); err != nil {
			f.fails++
		}
		return v, c, err
	}
	now := s.writes.Load()
	if f.it != nil && (f.at != now || f.used >= maxLookups) {
		if err := f.drop(); err != nil {
			return nil, nil, err
		}
	}
	if f.it == nil {
		if f.it, err = s.NewIter(&pdb.IterOptions{UseL6Filters: true}); err != nil {
			return nil, nil, err
		}
		f.at, f.used = now, 0
	}
	f.used++
	if f.it.SeekPrefixGE(key) { // the whole key is the prefix
		v, err = f.it.ValueAndErr()
		return v, nothing{}, err
	}
	f.fails++
	if err := f.it.Error(); err != nil {
		return nil, nil, err
	}
	return nil, nil, errNotFound
}

// decide says how the next lookups are made.
func (f *finder) decide(s *pebbleStore) error {
	f.filtered = f.fails*missShare >= f.gets && f.fit(s)
	f.gets, f.fails = 0, 0
	if f.filtered {
		return nil
	}
	return f.drop()
}

// fit reports whether the filters of the last level leave most of the block cache to the blocks.
func (f *finder) fit(s *pebbleStore) bool {
	n, b := f.entries.Load(), f.bytes.Load()
	if n == 0 {
		return true // nobody knows yet
	}
	m := s.Metrics()
	last := m.Levels[len(m.Levels)-1].TablesSize
	return last/max(b/n, 1)*filterBits/8 <= f.cache/filterShare
}

// written notes what goes to the store; on any goroutine.
func (f *finder) written(b *pdb.Batch) {
	f.entries.Add(int64(b.Count()))
	f.bytes.Add(int64(b.Len()))
}

// drop gives up the iterator.
func (f *finder) drop() error {
	if f.it == nil {
		return nil
	}
	err := f.it.Close()
	f.it = nil
	return err
}
