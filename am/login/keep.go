package login

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// firstRetry is the wait after tokens could not be obtained; each further one is twice as long.
const firstRetry = time.Second

// Keeper obtains tokens again and again, at their ratio of life, and hands them on.
type Keeper struct {
	// Obtain returns tokens, and when the first of them ends; zero for never.
	Obtain func(context.Context) (*token.Credentials, time.Time, error)
	// Take takes them over.
	Take  func(*token.Credentials) error
	Ratio float64       // of their life, after which the next are due
	Most  time.Duration // between two tries
	Log   zerolog.Logger
}

// NewKeeper has the ratio and the longest wait of a configuration.
func NewKeeper(cfg config.Configuration, obtain func(context.Context) (*token.Credentials, time.Time, error), take func(*token.Credentials) error, log zerolog.Logger) *Keeper {
	return &Keeper{Obtain: obtain, Take: take, Ratio: config.TokensRatio.Value(cfg), Most: config.TokensBackoff.Value(cfg), Log: log}
}

// Once obtains tokens and returns when the next are due.
func (k *Keeper) Once(ctx context.Context) (next time.Time, err error) {
	start := time.Now()
	c, until, err := k.Obtain(ctx)
	if err != nil {
		return next, err
	}
	if err := k.Take(c); err != nil {
		return next, err
	}
	next = start.Add(time.Duration(k.Ratio * float64(until.Sub(start))))
	if until.IsZero() { // nothing that ends
		next = start.Add(k.Most)
	}
	k.Log.Info().Int("tokens", c.Len()).Time("until", until).Time("next", next).Msg("delegation tokens obtained")
	return next, nil
}

// Keep obtains tokens until ctx ends. at is when the first are due.
func (k *Keeper) Keep(ctx context.Context, at time.Time) {
	wait := firstRetry
	for {
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		next, err := k.Once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.Log.Error().Err(err).Dur("again_in", wait).Msg("delegation tokens could not be obtained")
			at, wait = time.Now().Add(wait), min(2*wait, k.Most)
		default:
			at, wait = next, firstRetry
		}
	}
}
