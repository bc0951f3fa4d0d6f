package stateprocessor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/canonical"
)

// Writer gathers what a new savepoint is to hold. Nothing is done before Write, which also reports what was wrong before. Not safe for concurrent use.
// Source: Flink's SavepointWriter.
type Writer struct {
	o    *options
	from *Savepoint // nil: none
	meta metadata.Checkpoint
	max  int
	with []operatorChange
	errs []error
	// regroup is the max parallelism that all operators get; 0 leaves them theirs.
	regroup int
}

// operatorChange are the changes to an operator.
type operatorChange struct {
	id      graph.OperatorID
	uid     string
	changes []Change
}

// inlineLimit is execution.checkpointing.fs.memory-threshold by default: smaller state is in _metadata itself.
const inlineLimit = 20 << 10

// New starts a savepoint without state. maxParallelism is that of the operators that are added: the job's own, or 128 (or one and a half times the
// parallelism, rounded up to a power of two, when it is above 85) for a job that sets none. A job that sets none takes the savepoint's.
func New(maxParallelism int, opts ...Option) *Writer {
	o, err := newOptions(opts)
	w := &Writer{o: o, max: maxParallelism, meta: metadata.Checkpoint{ID: 1, JobID: graph.JobID{ID: graph.NewID()}, JobName: "stateprocessor"}}
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if maxParallelism < 1 || maxParallelism > state.MaxMaxParallelism {
		w.errs = append(w.errs, fmt.Errorf("stateprocessor: max parallelism %d: it is between 1 and %d", maxParallelism, state.MaxMaxParallelism))
	}
	return w
}

// Writer starts a savepoint with all that this one holds. Operators that are added have the greatest max parallelism that there is. The savepoint
// must be open until the new one is written.
func (s *Savepoint) Writer() *Writer {
	w := &Writer{o: s.o, from: s, meta: s.meta.Clone()}
	if s.meta.Unaligned() {
		w.mistake("%s is an unaligned checkpoint with records that were under way, which would be lost: take a savepoint of a job that starts from it", s.uri)
	}
	for i := range w.meta.Operators {
		w.max = max(w.max, w.meta.Operators[i].MaxParallelism)
	}
	if w.max == 0 {
		w.max = state.DefaultMaxParallelism(1)
	}
	return w
}

func (w *Writer) mistake(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("stateprocessor: "+format, args...))
}

// Remove leaves out all state of the operator with this UID.
func (w *Writer) Remove(uid string) *Writer {
	id := graph.OperatorIDOf(uid)
	if find(&w.meta, uid) == nil {
		w.mistake("Remove(%q): there is no operator with this uid", uid)
	}
	w.meta.Operators = slices.DeleteFunc(slices.Clone(w.meta.Operators), func(o metadata.Operator) bool { return o.ID == id })
	w.coordinator(id, nil)
	return w
}

// coordinator moves the state of an operator's half in the master, without touching the map that was read.
func (w *Writer) coordinator(id graph.OperatorID, to *graph.OperatorID) {
	all := map[graph.OperatorID][]byte{}
	for k, v := range w.meta.Coordinators {
		switch {
		case k != id:
			all[k] = v
		case to != nil:
			all[*to] = v
		}
	}
	w.meta.Coordinators = all
}

// ChangeUID gives the state of an operator to another one, by their UIDs.
func (w *Writer) ChangeUID(from, to string) *Writer {
	op := find(&w.meta, from)
	switch {
	case op == nil:
		w.mistake("ChangeUID(%q, %q): there is no operator with the first uid", from, to)
	case find(&w.meta, to) != nil:
		w.mistake("ChangeUID(%q, %q): there is an operator with the second uid already; remove it first", from, to)
	default:
		id := graph.OperatorIDOf(to)
		w.coordinator(op.ID, &id)
		op.ID, op.UID = id, to
	}
	return w
}

// With changes the state of the operator with this UID, one change after the other; an operator that is not there is added.
func (w *Writer) With(uid string, changes ...Change) *Writer {
	if uid == "" || len(changes) == 0 {
		w.mistake("With(%q): it needs a uid and a change", uid)
		return w
	}
	for _, c := range changes {
		if m, wrong := c.(mistaken); wrong || c == nil {
			w.mistake("With(%q): %s", uid, cmp.Or(string(m), "a change is nil"))
			return w
		}
	}
	id := graph.OperatorIDOf(uid)
	if i := slices.IndexFunc(w.with, func(c operatorChange) bool { return c.id == id }); i >= 0 {
		w.with[i].changes = append(w.with[i].changes, changes...)
		return w
	}
	if find(&w.meta, uid) == nil {
		w.meta.Operators = append(slices.Clone(w.meta.Operators), metadata.Operator{ID: id, UID: uid, Name: uid, Parallelism: 1, MaxParallelism: w.max})
	}
	w.with = append(w.with, operatorChange{id, uid, changes})
	return w
}

// Write writes the savepoint into a new folder below dir (a URI, or a path), and returns its URI, for thalweg run -s. Errors: those of With, Remove and
// ChangeUID, all at once; those of the changes; those of reading and writing.
func (w *Writer) Write(ctx context.Context, dir string) (uri string, err error) {
	if err := errors.Join(w.errs...); err != nil {
		return "", err
	}
	out := w.meta.Clone()
	out.Savepoint, out.Canonical, out.Trigger, out.Product = true, true, w.o.now().UTC().Truncate(time.Millisecond), version.Version
	f, p, err := w.o.files.Resolve(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("stateprocessor: %w", err)
	}
	defer f.Close() //nolint:errcheck // what was written is closed
	target := storage.NewSavepointDir(f.URI()+p, out.JobID)
	sink := storage.NewSink(w.o.files, target, "", inlineLimit)
	defer func() { err = errors.Join(err, sink.Close()) }()
	for i := range out.Operators {
		op := &out.Operators[i]
		var changes []Change
		if at := slices.IndexFunc(w.with, func(c operatorChange) bool { return c.id == op.ID }); at >= 0 {
			changes = w.with[at].changes
		}
		if err := w.operator(ctx, op, changes, sink); err != nil {
			return "", fmt.Errorf("stateprocessor: operator %s: %w", op.Title(), errors.Join(err, f.Remove(context.WithoutCancel(ctx), pathOf(f.URI(), target), true)))
		}
	}
	if _, _, err := storage.WriteMetadata(ctx, f, target, out); err != nil {
		return "", fmt.Errorf("stateprocessor: %w", err)
	}
	return target, nil
}

func pathOf(root, uri string) string { return uri[len(root):] }

// change applies changes to all of an operator's state.
func (w *Writer) change(ctx context.Context, op *metadata.Operator, changes []Change, sink *storage.Sink) error {
	var src *storage.Source
	if w.from != nil {
		src = w.from.src
	}
	b, err := w.o.bench(ctx, *op, src)
	if err != nil {
		return err
	}
	kept := b.ctx.State
	for _, c := range changes {
		if err := c.apply(ctx, b); err != nil {
			return errors.Join(err, b.close())
		}
	}
	sub, err := take(ctx, b.ctx, sink)
	if err = errors.Join(err, b.close()); err != nil {
		return err
	}
	for _, l := range kept.Lists {
		if !operator.OfUser(l.Name) { // of the operator itself: splits, what a sink prepared
			sub.Lists = append(sub.Lists, l)
		}
	}
	if len(sub.Keyed) == 0 {
		sub.Keyed = kept.Keyed // nobody opened it
		if err := w.carryHandles(ctx, op.MaxParallelism, sub.Keyed, sink); err != nil {
			return err
		}
	}
	op.Parallelism, op.Subtasks = 1, []metadata.Subtask{sub}
	return nil
}

// take is the snapshot of what was opened.
func take(ctx context.Context, c *operator.Context, sink *storage.Sink) (sub metadata.Subtask, err error) {
	s, err := operator.TakeOffline(c, operator.Barrier{ID: 1, Savepoint: true, Canonical: true})
	if err != nil {
		return sub, err
	}
	sub.Lists = s.Lists
	for _, k := range s.Keyed {
		h, err := k.Write(ctx, sink)
		if err != nil {
			return sub, err
		}
		sub.Keyed = append(sub.Keyed, h)
	}
	return sub, nil
}

// carry writes the keyed state of an operator as it is, in canonical form.
func (w *Writer) carry(ctx context.Context, op *metadata.Operator, sink *storage.Sink) error {
	for i := range op.Subtasks {
		op.Subtasks[i].Keyed = slices.Clone(op.Subtasks[i].Keyed)
		if err := w.carryHandles(ctx, op.MaxParallelism, op.Subtasks[i].Keyed, sink); err != nil {
			return err
		}
	}
	return nil
}

// carryHandles replaces handles by what is written of them: a backend that nothing is opened in has all in its snapshot as it was.
func (w *Writer) carryHandles(ctx context.Context, maxParallelism int, handles []state.Handle, sink *storage.Sink) error {
	for i, h := range handles {
		kind := w.o.backend
		if h.Format != canonical.Format {
			kind = h.Format
		}
		op := metadata.Operator{MaxParallelism: maxParallelism, Parallelism: 1}
		t, err := w.o.bench(ctx, op, w.from.src) // for its folder
		if err != nil {
			return err
		}
		b, err := backend.New(kind, state.Config{Range: h.Range, MaxParallelism: maxParallelism, Dir: t.dir, MemoryBytes: benchMemory, Restore: []state.Handle{h}, Source: w.from.src, Context: ctx, Logger: w.o.log})
		if err != nil {
			return errors.Join(err, t.close())
		}
		s, err := b.Snapshot(1, true)
		if err == nil {
			handles[i], err = s.Write(ctx, sink)
		}
		if err = errors.Join(err, b.Close(), t.close()); err != nil {
			return err
		}
	}
	return nil
}
