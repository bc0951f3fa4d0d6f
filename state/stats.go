package state

import "slices"

// TableStats is what writing a snapshot has found out about a table or timer set, for metrics.
type TableStats struct {
	Name    string
	Entries int64 // -1 when it is not known: in pebble's own form
	// Bytes of keys and values as they are stored: exact in the canonical form, and what the files take in pebble's own.
	Bytes int64
	// Largest are the largest entries that were written: of all in the canonical form, of those that had changed in pebble's own.
	Largest []EntrySize
}

// EntrySize is the size of an entry; Key is as it is encoded.
type EntrySize struct {
	Key   []byte
	Bytes int64
}

// largestKept is how many entries Largest keeps.
const largestKept = 5

// Largest keeps the largest of the entries that it sees. The zero value has seen none.
type Largest struct {
	all   []EntrySize // descending
	least int64       // what is not above it is not kept
}

// See looks at an entry; it copies a key that it keeps.
func (l *Largest) See(key []byte, bytes int64) {
	if bytes > l.least {
		l.keep(key, bytes)
	}
}

func (l *Largest) keep(key []byte, bytes int64) {
	at, _ := slices.BinarySearchFunc(l.all, bytes, func(e EntrySize, n int64) int { return int(n - e.Bytes) })
	l.all = slices.Insert(l.all, at, EntrySize{slices.Clone(key), bytes})
	if len(l.all) >= largestKept {
		l.all = l.all[:largestKept]
		l.least = l.all[largestKept-1].Bytes
	}
}

// Entries are those that were kept, the largest first.
func (l *Largest) Entries() []EntrySize { return l.all }
