package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/thalweg/thalweg/connector"
)

// box is a sink in memory that commits in two phases: each transaction is in it once, however often it is committed.
type box struct {
	made atomic.Int64

	mu   sync.Mutex
	txns map[int64][]string
}

// lines are those of all transactions, sorted.
func (b *box) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, t := range b.txns {
		all = append(all, t...)
	}
	slices.Sort(all)
	return all
}

type prepared struct {
	ID    int64    `json:"id"`
	Lines []string `json:"lines"`
}

// Writer implements connector.Sink.
func (b *box) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[string], error) {
	return &boxWriter{b: b}, nil
}

// Committer implements connector.CommittingSink.
func (b *box) Committer(connector.SinkContext) (connector.Committer, error) {
	return boxCommitter{b}, nil
}

type boxWriter struct {
	b     *box
	lines []string
}

func (w *boxWriter) Write(line string, _ int64) error {
	w.lines = append(w.lines, string([]byte(line))) // not a view of the exchange's buffer
	return nil
}

func (w *boxWriter) Flush(context.Context, bool) error { return nil }

// PrepareCommit implements connector.CommittingWriter.
func (w *boxWriter) PrepareCommit(int64) ([][]byte, error) {
	if len(w.lines) == 0 {
		return nil, nil
	}
	p, err := json.Marshal(prepared{w.b.made.Add(1), w.lines})
	w.lines = nil
	return [][]byte{p}, err
}

func (w *boxWriter) Committed(int64)                  {}
func (w *boxWriter) Snapshot(int64) ([][]byte, error) { return nil, nil }
func (w *boxWriter) Close() error                     { return nil }

type boxCommitter struct{ b *box }

// Commit implements connector.Committer.
func (c boxCommitter) Commit(_ context.Context, items [][]byte, _ bool) error {
	for _, item := range items {
		var p prepared
		if err := json.Unmarshal(item, &p); err != nil {
			return fmt.Errorf("box: commit: %w", err)
		}
		c.b.mu.Lock()
		c.b.txns[p.ID] = p.Lines
		c.b.mu.Unlock()
	}
	return nil
}

func (c boxCommitter) Close() error { return nil }
