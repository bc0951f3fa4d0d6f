package coordinator

import (
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
)

// Older lists what a restart can go back to when the latest checkpoint cannot be restored, newest first: the retained ones before it. It is
// empty when the latest is what the user chose to start from.
func (c *Coordinator) Older() []Completed {
	n := len(c.retained)
	if n < 2 || !c.own(c.retained[n-1].Dir) {
		return nil
	}
	var out []Completed
	for i := n - 2; i >= 0; i-- {
		out = append(out, *c.retained[i])
	}
	return out
}

// fallBack makes an older checkpoint the latest.
func (c *Coordinator) fallBack(ev FallBack) {
	at := -1
	for i, r := range c.retained {
		if r.ID == ev.To {
			at = i
		}
	}
	if at < 0 || c.ended || c.fenced {
		return
	}
	for _, r := range c.retained[at+1:] {
		c.cfg.Spare = max(c.cfg.Spare, r.ID)
		c.registry.Unregister(r.ID)
	}
	c.retained = c.retained[:at+1]
	c.retained[at].Checkpoint = ev.Checkpoint
}

// spared drops the files that a checkpoint which could not be restored may refer to.
func (c *Coordinator) spared(files []string) (unused []string) {
	for _, f := range files {
		if n, known := storage.FileCheckpoint(f); !known || n > c.cfg.Spare {
			unused = append(unused, f)
		}
	}
	return unused
}

// FallBack tells that the checkpoints after To cannot be restored: their files are damaged. To is retained; it is the latest from now on.
// Nothing is removed of the others, nor what they may refer to. Send it between JobRestarting and the restore.
type FallBack struct {
	To         int64
	Checkpoint metadata.Checkpoint // its content, with FileRef.Base
}

func (FallBack) event() {}
