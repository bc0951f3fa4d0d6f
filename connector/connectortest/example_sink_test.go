package connectortest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/stream"
)

// archive stands for a system that takes whole batches, each under a name: the same batch again changes nothing.
type archive struct {
	mu      sync.Mutex
	batches map[string][]string
}

func (a *archive) put(b batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.batches[b.Name] = b.Records
}

func (a *archive) records() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, b := range a.batches {
		all = append(all, b...)
	}
	slices.Sort(all)
	return all
}

// batch is what is committed: the records between two checkpoints of one subtask.
type batch struct {
	Name    string
	Records []string
}

// archiveSink writes exactly once, by two phases: a checkpoint has the batches, and when it is complete they are put into the archive. After
// a failure those of the checkpoint that the job is restored from are put again, and what was written behind it is forgotten.
type archiveSink struct{ to *archive }

func (s archiveSink) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[string], error) {
	return &batchWriter{subtask: ctx.Subtask}, nil
}

func (s archiveSink) Committer(connector.SinkContext) (connector.Committer, error) { return s, nil }

func (s archiveSink) Commit(_ context.Context, committables [][]byte, _ bool) error {
	for _, c := range committables {
		var b batch
		if err := json.Unmarshal(c, &b); err != nil {
			return err
		}
		s.to.put(b)
	}
	return nil
}

func (archiveSink) Close() error { return nil }

type batchWriter struct {
	subtask int
	records []string
}

func (w *batchWriter) Write(v string, _ int64) error {
	w.records = append(w.records, v)
	return nil
}

// PrepareCommit ends the batch of a checkpoint.
func (w *batchWriter) PrepareCommit(checkpointID int64) ([][]byte, error) {
	if len(w.records) == 0 {
		return nil, nil
	}
	c, err := json.Marshal(batch{fmt.Sprintf("checkpoint %d, subtask %d", checkpointID, w.subtask), w.records})
	w.records = nil
	return [][]byte{c}, err
}

func (*batchWriter) Flush(context.Context, bool) error { return nil }
func (*batchWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil } // everything is in the batches
func (*batchWriter) Committed(int64)                   {}
func (*batchWriter) Close() error                      { return nil }

// archiveSuite is the sink as TestSink wants it; its test is
//
//	func TestArchiveSink(t *testing.T) { connectortest.TestSink(t, 20, archiveSuite) }
func archiveSuite(*testing.T) connectortest.SinkSuite[string] {
	a := &archive{batches: map[string][]string{}}
	return connectortest.SinkSuite[string]{
		New:       func() connector.Sink[string] { return archiveSink{a} },
		Value:     func(name string) string { return name },
		Committed: func(*testing.T) []string { return a.records() },
	}
}

// A sink of one's own that writes exactly once: it passes the suite, and a job writes to it.
func ExampleTestSink() {
	a := &archive{batches: map[string][]string{}}
	build := func(env *stream.Environment) error {
		env.EnableCheckpointing(10*time.Millisecond, stream.ExactlyOnce)
		env.FromCollection("one", "two", "three").UID("numbers").
			SinkTo(archiveSink{a}).UID("archive")
		return nil
	}
	if err := stream.RunLocal(context.Background(), "archive", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(a.records())
	// Output: [one three two]
}
