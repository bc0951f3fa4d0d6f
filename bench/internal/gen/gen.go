// Package gen makes the events of the throughput cases and computes their results the plain way. Layer: bench.
//
// Event n is a pure function of n, here as in bench/flink (thalweg.bench.Event), so both engines see the same stream.
package gen

import "github.com/thalweg/thalweg/bench/internal/tally"

// Event is one generated record.
type Event struct {
	ID    int64
	Key   int64
	Value int64
	At    int64 // event time, milliseconds
	Text  string
}

// Count is the result of a window.
type Count struct {
	Key   int64
	Start int64 // of the window, milliseconds
	Count int64
}

const (
	texts   = 1024
	perMS   = 100 // events per millisecond of event time
	textLen = 64
	start   = 1735689600000 // 2025-01-01T00:00:00Z
)

var table = [texts]string(Texts(texts, textLen))

// Texts are n texts of so many letters each.
func Texts(n, length int) []string {
	all := make([]string, n)
	for i := range all {
		b := make([]byte, length)
		x := uint64(i)
		for j := range b {
			x = Mix(x)
			b[j] = 'a' + byte(x%26)
		}
		all[i] = string(b)
	}
	return all
}

// Mix is one step of SplitMix64.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Make makes event n; keys is the number of keys.
func Make(n, keys int64) Event {
	r := Mix(uint64(n))
	return Event{ID: n, Key: int64(r>>1) % keys, Value: int64(r & 0xffff), At: start + n/perMS, Text: table[r>>54]}
}

// Fill is Make in place.
func Fill(n, keys int64, e *Event) {
	r := Mix(uint64(n))
	e.ID, e.Key, e.Value, e.At, e.Text = n, int64(r>>1)%keys, int64(r&0xffff), start+n/perMS, table[r>>54]
}

// Map is the map function of the chain; as in the Flink job with object reuse it changes the event in place.
func Map(e *Event) { e.Value = e.Value*908 + 1000 }

// Keep is the filter of the chain.
func Keep(e *Event) bool { return e.Key%4 != 0 }

// Sum is an event's part in a checksum.
func (e *Event) Sum() int64 { return e.Value }

// Sum is a result's part in a checksum.
func (c *Count) Sum() int64 { return int64(Mix(uint64(c.Key+c.Start*31))) * c.Count }

// Expected computes the tally of a case ("generator", "chain" or "window") of so many events; window is in milliseconds.
func Expected(kind string, events, keys, window int64) tally.Tally {
	var t tally.Tally
	if kind == "window" {
		return expectedWindows(events, keys, window)
	}
	for n := range events {
		e := Make(n, keys)
		if kind == "chain" {
			if Map(&e); !Keep(&e) {
				continue
			}
		}
		t.Count++
		t.Sum += e.Sum()
	}
	return t
}

func expectedWindows(events, keys, window int64) tally.Tally {
	var t tally.Tally
	counts := make([]int64, keys)
	var at int64
	closeWindow := func() {
		for k, n := range counts {
			if n > 0 {
				t.Count++
				t.Sum += (&Count{int64(k), at, n}).Sum()
			}
		}
		clear(counts)
	}
	for n := range events { // in the order of event time
		e := Make(n, keys)
		if w := e.At - e.At%window; w != at {
			closeWindow()
			at = w
		}
		counts[e.Key]++
	}
	closeWindow()
	return t
}
