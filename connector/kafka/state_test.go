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
			s := span{topic: rapid.StringN(1, 3, -1).Draw(t, "topic"), partition: rapid.Int32Range(0, 1000).Draw(t, "p"),
				first: rapid.Int64Range(0, 1<<62).Draw(t, "first"), last: rapid.Int64Range(0, 1<<62).Draw(t, "last")}
			s.topicID[15] = rapid.ByteRange(0, 2).Draw(t, "id")
			c.spans = append(c.spans, s)
		}
		got, err := decodeCommittable(c.encode())
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("%+v %v", got, err)
		}
	})
}

// version1 is a committable of the form without ids of topics, as savepoints and checkpoints have it.
var version1 = []byte("\x01\x05a-0-7\x11\x02\x03\x04\x02\x01t\x00\x01\x05\x02uv\x03\x00\x00")

func TestCommittableVersion1(t *testing.T) {
	want := committable{id: "a-0-7", producerID: 17, epoch: 2, seq: 3, checkpoint: 4, spans: []span{{topic: "t", first: 1, last: 5}, {topic: "uv", partition: 3}}}
	if got, err := decodeCommittable(version1); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v %v", got, err)
	}
	for _, bad := range [][]byte{nil, {0}, {3}, version1[:9], append([]byte{2}, version1[1:]...)} {
		if c, err := decodeCommittable(bad); err == nil {
			t.Errorf("%q is %+v", bad, c)
		}
	}
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
	f.Add(version1)
	f.Add((&committable{id: "a-0-0", producerID: 1, spans: []span{{topic: "t", first: 1, last: 2}}}).encode())
	f.Add((&committable{id: "a-0-0", producerID: 1, spans: []span{
		{topic: "t", topicID: topicID{1}, first: 1, last: 2}, {topic: "u", topicID: topicID{2}, first: 1, last: 2}, {topic: "t", topicID: topicID{1}, partition: 1},
	}}).encode())
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
