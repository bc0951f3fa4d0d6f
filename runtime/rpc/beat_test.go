package rpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thalweg/thalweg/runtime/rpc"
)

// Only silence counts: not that of an end that never promised to speak, not what comes while nobody listens.
func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(w *rpc.Watch)
		want time.Duration // until it is called silent; 0: never
	}{
		"it never sent a beat": {func(w *rpc.Watch) { w.Listen(); w.Heard(false); w.Listen() }, 0},
		"it falls silent":      {func(w *rpc.Watch) { w.Listen(); w.Heard(true); w.Listen() }, 10 * time.Second},
		"nobody listens":       {func(w *rpc.Watch) { w.Listen(); w.Heard(true) }, 0},
		"it is listened to again": {func(w *rpc.Watch) {
			w.Listen()
			w.Heard(true)
			<-time.After(time.Minute - time.Second/2)
			w.Listen()
		}, 69 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var silent time.Duration
				w := rpc.NewWatch(time.Second, 10*time.Second, func() { silent = time.Since(begin) })
				c.do(w)
				<-time.After(time.Hour)
				w.Stop()
				if silent.Round(time.Second) != c.want {
					t.Errorf("silent after %v, want %v", silent, c.want)
				}
			})
		})
	}
}

func TestBeatsKeepAWatchQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := rpc.NewWatch(time.Second, 3*time.Second, func() { t.Error("it was called silent") })
		n := 0
		rpc.Beat(ctx, time.Second, func() { n++; w.Heard(true); w.Listen() })
		w.Stop()
		if n < 3599 || n > 3602 {
			t.Errorf("%d beats in an hour", n)
		}
	})
}
