package state_test

import (
	"testing"

	"github.com/thalweg/thalweg/state"
)

func TestPathOfAFile(t *testing.T) {
	for want, r := range map[string]state.FileRef{
		"hdfs://nn:8020/c/job/chk-3/ab":  {Base: "hdfs://nn:8020/c/job/chk-3", Name: "ab"},
		"hdfs://nn:8020/c/job/shared/ab": {Base: "hdfs://nn:8020/c/job/chk-3", Name: "../shared/ab"},
		"file:///c/chk-3/ab":             {Base: "file:///c/chk-3", Name: "ab"},
		"/c/shared/ab":                   {Base: "/c/chk-3", Name: "../shared/ab"},
		"ab":                             {Name: "ab"},
		"":                               {Base: "file:///c", Inline: []byte("x")},
	} {
		if got := r.Path(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
