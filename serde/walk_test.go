package serde

import (
	"errors"
	"testing"
	"time"
)

type walked struct {
	Flag  bool
	At    time.Time
	Text  string
	Bytes []byte
	Ref   *[2]int16
	Sets  []struct {
		F float32
		N uint64
	}
	Map   map[string][]int8
	Empty [3]struct{}
}

// A walk by the schema alone finds the end of every value, and says so when there is none.
func TestWalkBySchema(t *testing.T) {
	c := Must[walked]()
	s := c.Schema()
	full := walked{Flag: true, At: time.Unix(1, 2), Text: "text", Bytes: []byte{1, 2}, Ref: &[2]int16{3, 4}, Map: map[string][]int8{"a": {1}, "b": nil}}
	full.Sets = make([]struct {
		F float32
		N uint64
	}, 200)
	for _, v := range []walked{{}, {Bytes: []byte{}, Map: map[string][]int8{}}, full} {
		enc := c.Append(nil, v)
		if n, err := s.skip(append(enc, 0xff), 0, &op{}); err != nil || n != len(enc) {
			t.Errorf("%d bytes of %d: %v", n, len(enc), err)
		}
		if least := s.least(); least > len(enc) {
			t.Errorf("at least %d bytes, and there are %d", least, len(enc))
		}
		for i := range enc {
			if n, err := s.skip(enc[:i], 0, &op{}); err == nil {
				t.Fatalf("the first %d of %d bytes are a whole value of %d", i, len(enc), n)
			}
		}
	}
	for _, s := range []*Schema{nil, {Kind: "custom", Name: "geo.Point"}, {Kind: "odd"}} {
		if _, err := s.Split([]byte{1, 2}); !errors.Is(err, ErrOpaque) {
			t.Errorf("%s: %v", s, err)
		}
	}
}
