package kafka

import (
	"reflect"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"pgregory.net/rapid"
)

func TestSplitStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := split{
			topic: rapid.StringMatching(`[a-z0-9._-]{1,60}`).Draw(t, "topic"), partition: rapid.Int32Range(0, 1<<30).Draw(t, "partition"),
			offset: rapid.Int64Range(0, 1<<62).Draw(t, "offset"), stop: rapid.Int64Range(-1, 1<<62).Draw(t, "stop"),
			epoch: rapid.Int32Range(-1, 1<<30).Draw(t, "epoch"), flags: rapid.Byte().Draw(t, "flags"),
		}
		copy(s.topicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		got, err := decodeSplit(s.encode())
		if err != nil || got != s {
			t.Fatalf("%+v %v", got, err)
		}
	})
}

func TestCommittableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := committable{
			id: rapid.StringN(1, 40, -1).Draw(t, "id"), producerID: rapid.Int64Range(0, 1<<62).Draw(t, "pid"), epoch: rapid.Int16Range(0, 32767).Draw(t, "epoch"),
			seq: rapid.Uint64().Draw(t, "seq"), checkpoint: rapid.Int64Range(0, 1<<62).Draw(t, "checkpoint"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "spans") {
			c.spans = append(c.spans, span{rapid.StringN(1, 20, -1).Draw(t, "topic"), rapid.Int32Range(0, 1000).Draw(t, "p"),
				rapid.Int64Range(0, 1<<62).Draw(t, "first"), rapid.Int64Range(0, 1<<62).Draw(t, "last")})
		}
		got, err := decodeCommittable(c.encode())
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v %v", got, err)
		}
	})
}

func FuzzDecodeSplit(f *testing.F) {
	f.Add((&split{topic: "t", offset: 3, stop: noOffset, epoch: -1}).encode().State)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decodeSplit(connector.Split{ID: "x", State: b}); err == nil {
			if again, err := decodeSplit(s.encode()); err != nil || again != s {
				t.Fatalf("%+v %v", again, err)
			}
		}
	})
}

func FuzzDecodeCommittable(f *testing.F) {
	f.Add((&committable{id: "a-0-0", producerID: 1, spans: []span{{"t", 0, 1, 2}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCommittable(b); err == nil {
			if again, err := decodeCommittable(c.encode()); err != nil || !reflect.DeepEqual(again, c) {
				t.Fatalf("%+v %v", again, err)
			}
		}
	})
}

func TestParseID(t *testing.T) {
	for _, tc := range []struct {
		prefix, id    string
		subtask, slot int
		ok            bool
	}{
		{"a-", "a-3-1", 3, 1, true}, {"a-", "a-30-11", 30, 11, true}, {"a-", "a-1-0-1", 0, 0, false}, {"a-", "b-1-0", 0, 0, false},
		{"a-", "a-01-0", 0, 0, false}, {"a-", "a--1-0", 0, 0, false}, {"a-", "a-1", 0, 0, false}, {"", "1-2", 1, 2, true},
	} {
		sub, slot, ok := parseID(tc.prefix, tc.id)
		if ok != tc.ok || ok && (sub != tc.subtask || slot != tc.slot) {
			t.Errorf("%q %q: %d %d %v", tc.prefix, tc.id, sub, slot, ok)
		}
	}
}
