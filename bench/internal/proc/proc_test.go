package proc

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseTakesNamesWithBracketsAndBlanks(t *testing.T) {
	s, err := parse([]byte("42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 30 20 20 0 1 0 777 1 1"))
	if err != nil {
		t.Fatal(err)
	}
	want := Stat{PID: 42, Parent: 7, Name: "a) b (c)", State: 'S', Self: 2 * time.Second, Waited: 500 * time.Millisecond, start: 777}
	if s != want {
		t.Fatalf("got %+v, want %+v", s, want)
	}
	for _, bad := range []string{"", "x (y) S", "1 y S", "1 (y) S 1 2 3"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A parent's children, grandchildren and children that no sample saw are counted, and none of them twice.
func TestTrackerCountsEachSecondOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	spin := `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`
	mark := "BENCH_PROC_TEST=" + strconv.Itoa(os.Getpid()) // not that of another run on this machine
	cmd := exec.CommandContext(ctx, "sh", "-c", "sh -c '"+spin+"; (:)'; sh -c '(sh -c \"exec true\"); "+spin+"'; "+spin+"; read x")
	cmd.Env = append(os.Environ(), mark)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tr := Track(func(pid int) bool { return slices.Contains(splitNUL(Environment(pid)), mark) })
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	var before Usage
	for { // until the parent waits for its input
		u := tr.Usage()
		if u.Live == 1 && u.CPU == before.CPU && u.CPU > 0 && cmdIdle(cmd.Process.Pid) {
			break
		}
		before = u
		select {
		case <-ctx.Done():
			t.Fatal("the child does not come to rest")
		case <-time.After(3 * every):
		}
	}
	got := tr.Stop()
	s, err := Read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if want := s.Self + s.Waited; got.CPU < want-3*tick || got.CPU > want+3*tick {
		t.Errorf("the tracker counts %v, the kernel %v", got.CPU, want)
	}
	if got.Peak <= 0 {
		t.Error("no peak memory")
	}
}

func cmdIdle(pid int) bool {
	s, err := Read(pid)
	return err == nil && s.State == 'S'
}

func splitNUL(b []byte) []string {
	var all []string
	for _, p := range slices.Collect(func(yield func([]byte) bool) {
		for len(b) > 0 {
			i := slices.Index(b, 0)
			if i < 0 {
				i = len(b)
			}
			if !yield(b[:i]) {
				return
			}
			b = b[min(i+1, len(b)):]
		}
	}) {
		all = append(all, string(p))
	}
	return all
}
