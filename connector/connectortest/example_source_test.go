package connectortest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/stream"
)

// shelves is a bounded source of books: each shelf is a split, and a reader asks for the next one when it has read one to its end.
type shelves struct{ books [][]string }

func (shelves) Boundedness() connector.Boundedness { return connector.Bounded }

func (s shelves) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	e := &librarian{ctx: ctx}
	if restored != nil {
		return e, json.Unmarshal(restored, &e.free)
	}
	for i := range s.books {
		e.free = append(e.free, connector.Split{ID: fmt.Sprint("shelf ", i), State: position{Shelf: i}.encode()})
	}
	return e, nil
}

func (s shelves) Reader(ctx connector.ReaderContext) (connector.Reader[string], error) {
	return &reader{ctx: ctx, books: s.books, wake: make(chan struct{}, 1)}, nil
}

// position is the state of a split.
type position struct{ Shelf, Next int }

func (p position) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // two numbers
	}
	return b
}

// librarian hands out the splits. It runs once for the job; its state is the splits that nobody has.
type librarian struct {
	ctx  connector.EnumeratorContext
	free []connector.Split
}

func (*librarian) Start(context.Context) error { return nil }
func (*librarian) AddReader(int)               {} // it will ask
func (e *librarian) AddSplitsBack(splits []connector.Split, sub int) {
	e.free = append(e.free, splits...)
}
func (*librarian) CheckpointComplete(int64)         {}
func (*librarian) Close() error                     { return nil }
func (e *librarian) Snapshot(int64) ([]byte, error) { return json.Marshal(e.free) }

func (e *librarian) HandleSplitRequest(subtask int) {
	if len(e.free) == 0 {
		e.ctx.NoMoreSplits(subtask)
		return
	}
	e.ctx.Assign(subtask, e.free[0])
	e.free = e.free[1:]
}

// reader reads the splits of a subtask, one after the other.
type reader struct {
	ctx    connector.ReaderContext
	books  [][]string
	splits []connector.Split
	out    connector.SplitOutput[string] // of the first one
	noMore bool
	wake   chan struct{}
}

func (r *reader) Start(context.Context) error {
	if r.ctx.Restored == 0 {
		r.ctx.RequestSplit()
	}
	return nil
}

func (r *reader) AddSplits(splits []connector.Split) error {
	r.splits = append(r.splits, splits...)
	r.available()
	return nil
}

func (r *reader) NoMoreSplits() {
	r.noMore = true
	r.available()
}

func (r *reader) available() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader) Available() <-chan struct{} { return r.wake }

func (r *reader) Poll(out connector.Output[string], limit int) (connector.Status, error) {
	for len(r.splits) > 0 {
		s := &r.splits[0]
		var p position
		if err := json.Unmarshal(s.State, &p); err != nil {
			return 0, fmt.Errorf("split %q: %w", s.ID, err)
		}
		if r.out == nil {
			r.out = out.Split(s.ID)
		}
		for ; limit > 0 && p.Next < len(r.books[p.Shelf]); limit-- {
			if err := r.out.Collect(r.books[p.Shelf][p.Next], connector.NoTimestamp); err != nil {
				return 0, err
			}
			p.Next++
		}
		if p.Next < len(r.books[p.Shelf]) {
			s.State = p.encode()
			return connector.MoreAvailable, nil
		}
		out.ReleaseSplit(s.ID)
		r.splits, r.out = r.splits[1:], nil
		if len(r.splits) == 0 && !r.noMore {
			r.ctx.RequestSplit()
		}
	}
	if r.noMore {
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

func (r *reader) Snapshot(int64) ([]connector.Split, error)     { return slices.Clone(r.splits), nil }
func (*reader) CheckpointComplete(context.Context, int64) error { return nil }
func (*reader) CheckpointAborted(int64)                         {}
func (*reader) Close() error                                    { return nil }

// booksSuite is the source as TestSource wants it; its test is
//
//	func TestShelves(t *testing.T) { connectortest.TestSource(t, booksSuite()) }
func booksSuite() connectortest.SourceSuite[string] {
	books := [][]string{{"Emma", "Persuasion"}, {}, {"Ulysses"}, {"Dracula", "Carmilla", "Frankenstein"}}
	return connectortest.SourceSuite[string]{
		New:  func() connector.Source[string] { return shelves{books} },
		Key:  func(title string) string { return title },
		Want: slices.Concat(books...),
	}
}

// A source of one's own: it passes the suite, and a job reads it.
func ExampleTestSource() {
	build := func(env *stream.Environment) error {
		env.FromSource(booksSuite().New(), stream.NoWatermarks[string](), "books").UID("books").Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "library", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Emma
	// Persuasion
	// Ulysses
	// Dracula
	// Carmilla
	// Frankenstein
}
