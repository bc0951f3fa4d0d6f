package file

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/thalweg/thalweg/connector"
)

// What is stored of splits, of what is to be committed and of the parts that wait for it is taken as it was, or refused.
func FuzzDecodeSplit(f *testing.F) {
	s := split{Version: splitVersion, Path: "file:///a", End: 10, Next: -1, Size: 10}
	cs, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cs.State)
	f.Add([]byte(`{"v":1,"path":"x","start":5,"end":4}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSplit(connector.Split{ID: "x", State: b})
		if err != nil {
			return
		}
		cs, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeSplit(cs); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v is %+v, %v", s, again, err)
		}
	})
}

func FuzzDecodeCommittable(f *testing.F) {
	f.Add([]byte(`{"from":"file:///d/.pending/j/0-1-2.job","to":"file:///d/part"}`))
	f.Add([]byte(`{"from":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCommittable(b); err == nil && (c.From == "" || c.To == "") {
			t.Fatalf("%+v", c)
		}
		parsePending(string(b))
	})
}

func FuzzWriterState(f *testing.F) {
	good, err := json.Marshal(writerState{[]string{"file:///out/" + hidden + "/x"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, []byte(`{"from":"file:///out/`+hidden+`/x/0-1-2.job","to":"file:///out/part"}`))
	f.Add([]byte(`{"folders":["`+hidden+`"]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, state, committable []byte) {
		_, _ = newLeftovers(connector.SinkContext{JobID: "j", AllCommittables: [][]byte{committable}}, &sinkConfig{}, [][]byte{state})
	})
}

func FuzzEnumeratorState(f *testing.F) {
	f.Add([]byte(`{"v":1,"listed":true,"known":{"file:///a":1}}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := newEnumerator(&sourceConfig{}, nil, b)
		if err != nil {
			return
		}
		if _, err := e.Snapshot(1); err != nil {
			t.Fatal(err)
		}
	})
}
