package ha

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Pauses between two tries of Await; a file system has tried for longer itself before it says that it is unavailable.
const (
	awaitFirst = 50 * time.Millisecond
	awaitMost  = 2 * time.Second
)

// Await repeats op while it fails because a file system is unavailable (fs.ErrUnavailable: not reachable, in safe mode), for as long as
// ctx lives: what an application attempt reads and writes to take over cannot be done better by the next attempt, which could not even
// be launched, since its files come from the same place. Every other error, and the end of ctx, ends it; the error then names the last
// failure as well.
func Await(ctx context.Context, log zerolog.Logger, what string, op func(ctx context.Context) error) error {
	start := time.Now()
	var last error
	for pause := awaitFirst; ; pause = min(2*pause, awaitMost) {
		err := op(ctx)
		switch {
		case err == nil:
			if last != nil {
				log.Info().Dur("dur", time.Since(start)).Str("what", what).Msg("the file system serves again")
			}
			return nil
		case ctx.Err() != nil:
			if last == nil || !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ctx.Err()) {
				last = err
			}
			return errors.Join(last, context.Cause(ctx))
		case !errors.Is(err, fs.ErrUnavailable):
			return err
		}
		last = err
		log.Warn().Err(err).Dur("dur", time.Since(start)).Str("what", what).Msg("the file system is unavailable; trying again until it serves")
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(last, context.Cause(ctx))
		}
	}
}

// Patient returns a Store that waits, by Await, while store is unavailable, in everything that an attempt needs to take over: epoch, jobs,
// results, progress, leader. StorePointer, StoreProgress, ReserveIDs and EndJob are handed on as they are: those who call them repeat them by rules of their own.
func Patient(store Store, log zerolog.Logger) Store { return &patient{Store: store, log: log} }

type patient struct {
	Store
	log zerolog.Logger
}

func (p *patient) AcquireEpoch(ctx context.Context, owner string) (epoch int64, err error) {
	err = Await(ctx, p.log, "acquire epoch", func(ctx context.Context) error {
		epoch, err = p.Store.AcquireEpoch(ctx, owner)
		return err
	})
	return epoch, err
}

func (p *patient) CheckEpoch(ctx context.Context) error {
	return Await(ctx, p.log, "check epoch", p.Store.CheckEpoch)
}

func (p *patient) PutJob(ctx context.Context, j Job) error {
	return Await(ctx, p.log, "store job", func(ctx context.Context) error { return p.Store.PutJob(ctx, j) })
}

func (p *patient) Jobs(ctx context.Context) (jobs []Job, err error) {
	err = Await(ctx, p.log, "read jobs", func(ctx context.Context) error {
		jobs, err = p.Store.Jobs(ctx)
		return err
	})
	return jobs, err
}

func (p *patient) OpenJob(ctx context.Context, id graph.JobID) (at Pointer, first int64, err error) {
	err = Await(ctx, p.log, "open job", func(ctx context.Context) error {
		at, first, err = p.Store.OpenJob(ctx, id)
		return err
	})
	return at, first, err
}

func (p *patient) Progress(ctx context.Context, id graph.JobID) (data []byte, err error) {
	err = Await(ctx, p.log, "read progress", func(ctx context.Context) error {
		data, err = p.Store.Progress(ctx, id)
		return err
	})
	return data, err
}

func (p *patient) Results(ctx context.Context) (results map[graph.JobID]Result, err error) {
	err = Await(ctx, p.log, "read results", func(ctx context.Context) error {
		results, err = p.Store.Results(ctx)
		return err
	})
	return results, err
}

func (p *patient) PublishLeader(ctx context.Context, l Leader) error {
	return Await(ctx, p.log, "publish leader", func(ctx context.Context) error { return p.Store.PublishLeader(ctx, l) })
}
