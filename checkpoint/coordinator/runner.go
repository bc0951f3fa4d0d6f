package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/internal/failpoint"
)

// Pointers makes pointers durable; runtime/ha.JobPointers is one.
type Pointers interface {
	StorePointer(ctx context.Context, id int64, dir string) error
	ReserveIDs(ctx context.Context, upTo int64) error
	// Superseded reports whether an error means that another application attempt has taken over, or that the job is gone. Everything
	// else is repeated until its outcome is certain.
	Superseded(err error) bool
}

// Runner does the file work of effects: WriteMetadata, StorePointer, ReserveIDs, Discard, Sweep. Its answers go to post, which must not
// block for long (it puts them into the main loop's mailbox).
type Runner struct {
	ctx      context.Context //nolint:containedctx // the Runner's life
	cancel   context.CancelFunc
	storage  *storage.Storage
	pointers Pointers
	post     func(Event)
	log      zerolog.Logger
	wg       sync.WaitGroup

	mu       sync.Mutex
	writes   map[int64]write // of metadata, by the checkpoint's number
	removals []Effect
	removing bool
	idle     chan struct{} // closed when removals are done; replaced when new ones come
}

// write is metadata that is being written.
type write struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewRunner returns a Runner that works until Close or the end of ctx.
func NewRunner(ctx context.Context, st *storage.Storage, pointers Pointers, log zerolog.Logger, post func(Event)) *Runner {
	ctx, cancel := context.WithCancel(ctx)
	idle := make(chan struct{})
	close(idle)
	return &Runner{ctx: ctx, cancel: cancel, storage: st, pointers: pointers, post: post, writes: map[int64]write{}, idle: idle,
		log: log.With().Str("component", "checkpoints").Logger()}
}

// Do begins the work of e and returns at once; false when e is not file work.
func (r *Runner) Do(e Effect) bool {
	switch e := e.(type) {
	case WriteMetadata:
		ctx, cancel := context.WithCancel(r.ctx)
		w := write{cancel: cancel, ended: make(chan struct{})}
		r.mu.Lock()
		r.writes[e.ID] = w
		r.mu.Unlock()
		r.wg.Go(func() {
			defer close(w.ended)
			defer cancel()
			r.writeMetadata(ctx, e)
			r.mu.Lock()
			delete(r.writes, e.ID)
			r.mu.Unlock()
		})
	case StorePointer:
		r.wg.Go(func() {
			failpoint.At("checkpoint/pointer/before")
			err := r.untilCertain("store checkpoint pointer", func() error { return r.pointers.StorePointer(r.ctx, e.ID, e.Dir) })
			failpoint.At("checkpoint/pointer/after")
			if r.ctx.Err() == nil {
				r.post(PointerStored{ID: e.ID, Err: err})
			}
		})
	case ReserveIDs:
		r.wg.Go(func() {
			err := r.untilCertain("reserve checkpoint numbers", func() error { return r.pointers.ReserveIDs(r.ctx, e.UpTo) })
			if r.ctx.Err() == nil {
				r.post(IDsReserved{UpTo: e.UpTo, Err: err})
			}
		})
	case Discard, Sweep:
		r.remove(e)
	default:
		return false
	}
	return true
}

// Flush waits until all removals that were begun have ended, for the end of a job.
func (r *Runner) Flush(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// Close cancels what is under way and waits for it. Call Flush before to let removals end.
func (r *Runner) Close() {
	r.cancel()
	r.wg.Wait()
}

const (
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
	removalTries = 6
	leastTry     = 10 * time.Second // what one try gets, however late it begins
)

// pause waits for the n-th backoff (0, 1, ...); false when ctx ends or until is reached first.
func pause(ctx context.Context, n int, until time.Time) bool {
	d := maxBackoff
	if n < 10 {
		d = min(firstBackoff<<n, maxBackoff)
	}
	if !until.IsZero() && time.Now().Add(d).After(until) {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (r *Runner) writeMetadata(ctx context.Context, e WriteMetadata) {
	for n := 0; ; n++ {
		try, cancel := context.WithTimeout(ctx, max(time.Until(e.Deadline), leastTry))
		uri, size, err := r.storage.WriteMetadata(try, e.Dir, e.Checkpoint)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil || permanent(err) || !pause(ctx, n, e.Deadline) {
			if ctx.Err() == nil {
				r.post(MetadataWritten{ID: e.ID, Path: uri, Size: size, Err: err})
			}
			return
		}
		r.log.Warn().Err(err).Int64("checkpoint_id", e.ID).Msg("cannot write checkpoint metadata, trying again")
	}
}

func (r *Runner) untilCertain(what string, try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if err == nil || r.pointers.Superseded(err) {
			return err
		}
		if r.ctx.Err() != nil {
			return err
		}
		r.log.Warn().Err(err).Msg("cannot " + what + ", trying again")
		if !pause(r.ctx, n, time.Time{}) {
			return err
		}
	}
}

// giveUp ends the write of a checkpoint's metadata, if there is one, and waits for its end.
func (r *Runner) giveUp(id int64) {
	r.mu.Lock()
	w, ok := r.writes[id]
	r.mu.Unlock()
	if ok {
		w.cancel()
		<-w.ended
	}
}

// remove appends to the queue of removals, which one goroutine works off.
func (r *Runner) remove(e Effect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removals = append(r.removals, e)
	if r.removing {
		return
	}
	r.removing = true
	r.idle = make(chan struct{})
	r.wg.Go(r.removeAll)
}

func (r *Runner) removeAll() {
	for {
		r.mu.Lock()
		if len(r.removals) == 0 || r.ctx.Err() != nil {
			r.removing = false
			close(r.idle)
			r.mu.Unlock()
			return
		}
		e := r.removals[0]
		r.removals = r.removals[1:]
		r.mu.Unlock()
		r.removeOne(e)
	}
}

func (r *Runner) removeOne(e Effect) {
	failpoint.At("checkpoint/remove")
	if d, ok := e.(Discard); ok && d.Written != 0 {
		r.giveUp(d.Written)
	}
	for n := 0; ; n++ {
		var err error
		switch e := e.(type) {
		case Discard:
			err = r.storage.Remove(r.ctx, e.Files, e.Dirs, e.EmptyDirs)
			if err == nil {
				r.log.Debug().Str("reason", e.Reason).Int("files", len(e.Files)).Int("dirs", len(e.Dirs)).Msg("discarded checkpoint data")
			}
		case Sweep:
			var removed []string
			removed, err = r.storage.Sweep(r.ctx, e.Below, e.Keep.Dirs, e.Keep.Files)
			if len(removed) > 0 {
				r.log.Info().Strs("removed", removed).Msg("removed what aborted checkpoints left")
			}
		}
		if err == nil || r.ctx.Err() != nil {
			return
		}
		if n+1 == removalTries || permanent(err) || !pause(r.ctx, n, time.Time{}) {
			r.log.Warn().Err(err).Msg("cannot remove checkpoint data; the next sweep tries again, or remove it by hand")
			return
		}
	}
}
