package increment

import (
	"maps"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func files(keysAndNames ...string) (out []state.File) {
	for i := 0; i < len(keysAndNames); i += 2 {
		out = append(out, state.File{Key: keysAndNames[i], Ref: state.FileRef{Name: keysAndNames[i+1]}})
	}
	return out
}

// With several checkpoints under way each refers to files of the latest completed one alone: what another one that is pending has sent may go.
func TestSeveralUnderWay(t *testing.T) {
	var tr Tracker
	want := func(keysAndNames ...string) {
		t.Helper()
		w := map[string]state.FileRef{}
		for _, f := range files(keysAndNames...) {
			w[f.Key] = f.Ref
		}
		if got := tr.Known(); !maps.EqualFunc(got, w, func(a, b state.FileRef) bool { return a.Name == b.Name }) {
			t.Fatalf("known are %v, want %v", got, w)
		}
	}
	want()
	tr.Restored(files("a", "1-a"))
	want("a", "1-a")
	tr.Sent(2, files("a", "1-a", "b", "2-b"))
	tr.Sent(3, files("a", "1-a", "b", "3-b"))
	tr.Sent(4, files("b", "4-b"))
	want("a", "1-a")
	tr.Completed(3)
	want("a", "1-a", "b", "3-b")
	tr.Completed(2) // subsumed: nobody says so, and it changes nothing
	want("a", "1-a", "b", "3-b")
	tr.Completed(3) // a second notice
	want("a", "1-a", "b", "3-b")
	tr.Aborted(4)
	tr.Completed(4)
	want("a", "1-a", "b", "3-b")
	tr.Sent(5, nil)
	tr.Completed(5)
	want()
}
