package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/thalweg/thalweg/am/submit"
)

// progress shows a submission: a bar of the bytes that are sent on a terminal, a line per phase else.
type progress struct {
	c     *cli
	start time.Time

	mu    sync.Mutex
	began time.Time // of bar
	bar   *progressbar.ProgressBar
	total map[string]int64
	sent  map[string]int64
}

// rateAfter is how long an upload goes on before its bar is shown.
const rateAfter = 300 * time.Millisecond

func (p *progress) upload(name string, sent, total int64) {
	if p.c.json() || !p.c.tty {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total == nil {
		p.total, p.sent = map[string]int64{}, map[string]int64{}
	}
	p.total[name], p.sent[name] = total, sent
	var all, now int64
	for n, t := range p.total {
		all += t
		now += p.sent[n]
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(all, progressbar.OptionSetDescription("sending"), progressbar.OptionShowBytes(true), progressbar.OptionSetWriter(p.c.err),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		p.bar.StartWithoutRender()
		p.began = time.Now()
	}
	if time.Since(p.began) < rateAfter { // a rate over less says nothing, and most uploads are over by then
		return
	}
	p.bar.ChangeMax64(all)
	_ = p.bar.Set64(now) // only shows
}

func (p *progress) phase(ph submit.Phase) {
	p.done()
	switch {
	case p.c.json():
		_ = p.c.emit(map[string]any{"event": "phase", "phase": ph.Name, "ms": ph.Ms}) // nobody reads it any more
	default:
		p.c.notef("%-8s %8s", ph.Name, round(ph.Took))
	}
}

func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish() // only shows
		_ = p.bar.Clear()
		p.bar = nil
	}
}

func round(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}
