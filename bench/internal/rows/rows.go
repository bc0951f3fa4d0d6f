// Package rows makes the events of the case whose state is larger than memory, and computes its results the plain way. Layer: bench.
//
// The first events bring each key once, in an order that is not that of the keys; all later ones are for keys at random, of all or of a hot set that
// moves on. A key's row counts its events and holds a text of 192 letters, another one after each event; a result depends on the text that the row
// held. Everything is a pure function of the event's number, here as in bench/flink (thalweg.bench.Rows).
package rows

import (
	"fmt"

	"github.com/thalweg/thalweg/bench/internal/gen"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/config"
)

// Event is one generated record.
type Event struct{ Key int64 }

// Row is a key's state.
type Row struct {
	Count int64 // events
	Check int64 // over the texts that were
	Text  string
}

// Result is a row after an event.
type Result struct{ Key, Count, Check int64 }

const (
	texts   = 4096
	textLen = 192
	// Bytes is about what a row takes encoded, its key included.
	Bytes = textLen + 8 + 12
	// stride is a prime larger than the number of keys can be, so that its multiples modulo that number meet each key once.
	stride = 2654435761
	// MaxKeys bounds the number of keys.
	MaxKeys = 1 << 31
)

var table = [texts]string(gen.Texts(texts, textLen))

// hotEvents is how many events a hot key gets on average before the hot set moves on.
const hotEvents = 1000

// Key is the key of event n, of so many keys. With hot above 0, the events after the first of each key are for a set of so many keys, which after
// hotEvents for each are others.
func Key(n, keys, hot int64) int64 {
	if n < keys {
		return n * stride % keys
	}
	r := int64(gen.Mix(uint64(n)) >> 1)
	if hot > 0 {
		return ((n-keys)/(hot*hotEvents)*hot + r%hot) % keys * stride % keys
	}
	return r % keys
}

// Keys is how many keys make a state of a size such as "100mb". Errors: not a size, or out of range.
func Keys(size string) (int64, error) {
	b, err := config.ParseBytes(size)
	if err != nil {
		return 0, err
	}
	n := int64(b) / Bytes
	if n < 1 || n > MaxKeys {
		return 0, fmt.Errorf("%s: it must hold 1 to %d keys of %d bytes", size, int64(MaxKeys), Bytes)
	}
	return n, nil
}

// index is the text of a row after so many events.
func index(key, count int64) uint64 { return gen.Mix(uint64(key+count*31)) % texts }

// part is a text's part in a row's checksum.
func part(s string) int64 {
	return int64(s[0]) + int64(s[textLen/2])<<8 + int64(s[textLen-1])<<16
}

// Update brings an event into a row; a new row is zero.
func (r *Row) Update(key int64) Result {
	if r.Count > 0 {
		r.Check += part(r.Text)
	}
	r.Count++
	r.Text = table[index(key, r.Count)]
	return Result{key, r.Count, r.Check}
}

// Sum is a result's part in a checksum.
func (r *Result) Sum() int64 { return int64(gen.Mix(uint64(r.Key+r.Count*31))) * (r.Check | 1) }

// Expected computes the tally of so many events.
func Expected(events, keys, hot int64) tally.Tally {
	counts, checks := make([]int32, keys), make([]int64, keys)
	var parts [texts]int64
	for i := range parts {
		parts[i] = part(table[i])
	}
	t := tally.Tally{Count: events}
	for n := range events {
		k := Key(n, keys, hot)
		if c := int64(counts[k]); c > 0 {
			checks[k] += parts[index(k, c)]
		}
		counts[k]++
		t.Sum += (&Result{k, int64(counts[k]), checks[k]}).Sum()
	}
	return t
}
