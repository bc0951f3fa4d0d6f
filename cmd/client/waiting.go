package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
)

// waits tells why YARN has not started an application yet. YARN's text carries numbers that change all the time: only its first sentences
// count as news.
type waits struct {
	since time.Time
	said  string
}

// waitsSilently is how long the start of an application may take without a word.
const waitsSilently = 2 * time.Second

// next is what there is to say at a time, "" for nothing.
func (w *waits) next(app control.Application, now time.Time) string {
	if !awaitsMaster(app) {
		*w = waits{}
		return ""
	}
	if w.since.IsZero() {
		w.since = now
	}
	text := reason(app)
	head, _, _ := strings.Cut(text, "Details")
	if text == "" || head == w.said || now.Sub(w.since) < waitsSilently {
		return ""
	}
	w.said = head
	return text
}

// awaitsMaster reports whether YARN has yet to start the application's master.
func awaitsMaster(app control.Application) bool { return app.REST == "" && !app.Ended() }

var stamp = regexp.MustCompile(`^\[[^\]]*\] *`)

// reason is YARN's reason for the state of an application that waits, in one line.
func reason(app control.Application) string {
	return oneLine(strings.Join(strings.Fields(stamp.ReplaceAllString(app.Diagnostics, "")), " "))
}

// cancelWaiting ends an application that has no master, and so nobody who could cancel its job. done: there was one, and it has ended. A first
// attempt has no job yet; the master of a later one gets client.connection-timeout to come back.
func (c *cli) cancelWaiting(ctx context.Context) (done bool, err error) {
	cfg, err := c.config(nil)
	if err != nil {
		return false, err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return false, err
	}
	defer k.close()
	app, err := control.Find(ctx, k.yarn, cfg)
	for end := time.Now().Add(config.ClientConnectTimeout.Value(cfg)); err == nil && awaitsMaster(app) && app.Attempt > 1 && time.Now().Before(end); {
		timer := time.NewTimer(followQuick)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, ctx.Err()
		}
		app, err = control.Get(ctx, k.yarn, app.ID)
	}
	if err != nil || !awaitsMaster(app) {
		return false, err
	}
	if err := k.yarn.Kill(ctx, app.ID, "cancelled while it waited for its master"); err != nil {
		return false, err
	}
	if files, err := k.files(); err == nil {
		if err := submit.Forget(ctx, files, cfg, k.hadoop, k.user, app.ID); err != nil {
			c.notef("%v", err) // a later submission removes it
		}
	}
	if c.json() {
		return true, c.emit(map[string]any{"event": "cancelled", "applicationId": app.ID.String(), "state": "CANCELED", "was": app.State, "diagnostics": reason(app), "killed": true})
	}
	why := ""
	if r, _, _ := strings.Cut(reason(app), "Details"); r != "" { // the rest is numbers
		why = fmt.Sprintf(" (%s)", strings.TrimRight(r, ". "))
	}
	c.printf("%s waited in %s%s: it had no master to cancel its job, and was killed through YARN.\n", app.ID, app.State, why)
	return true, nil
}
