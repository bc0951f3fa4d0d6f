package file

import (
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/process"
)

// What a run that was killed leaves are pending parts that no checkpoint holds. Who may remove them:
//
//   - The attempts of a job come one after another, so each removes what those before it left: of its own subtask number and, after a rescale, of
//     numbers that fall to it.
//   - A job that was restored from another one's checkpoint gets the folder of that one's parts with its state and goes on in it. But the
//     checkpoint may be that of a job that lives on. So what is there of other jobs is removed only when it is known that the job has ended, since
//     the process that it was all of has (local runs), or after forsaken, when a job that lives would have closed and committed it.
//
// Committables of the restored checkpoint are never removed. A job that is restored from nothing knows of no other.

// forsaken is how old a part of another job must be to be taken for one that nobody comes back for; twice the roll interval where that is longer.
const forsaken = time.Hour

// writerState is what a writer keeps in a checkpoint. Wire form: JSON.
type writerState struct {
	Folders []string `json:"folders"` // of pending parts, URIs: its own, then those where former runs left some
}

// leftovers are the folders of pending parts that a writer knows of.
type leftovers struct {
	ctx     connector.SinkContext
	folders []string        // URIs, its own first
	keep    map[string]bool // what is to be committed, URIs
	mark    string          // the end of the names of this job's pending parts: job and, where it ends with its process, that
	age     time.Duration
	started bool // this attempt has begun to write
	waiting bool // some could not be removed yet
	next    time.Time
}

func newLeftovers(ctx connector.SinkContext, cfg *sinkConfig, restored [][]byte) (leftovers, error) {
	l := leftovers{ctx: ctx, keep: map[string]bool{}, mark: "." + short(ctx.JobID), age: max(forsaken, 2*cfg.rollInterval)}
	if name := process.Self(); ctx.Embedded && name != "" {
		l.mark += "." + name
	}
	for _, b := range ctx.AllCommittables {
		c, err := decodeCommittable(b)
		if err != nil {
			return l, err
		}
		l.keep[c.From] = true
	}
	if len(restored) == 0 { // a subtask that the former run had not: it goes where its siblings go, if the checkpoint tells
		for _, b := range ctx.AllCommittables[:min(1, len(ctx.AllCommittables))] {
			c, _ := decodeCommittable(b) // it was, above
			if folder := folderOf(c.From); path.Base(folderOf(folder)) == hidden {
				l.folders = []string{folder}
			}
		}
	}
	for _, b := range restored {
		var s writerState
		if err := json.Unmarshal(b, &s); err != nil {
			return l, fmt.Errorf("file: state %.200q of the sink's writer is not valid", b)
		}
		for _, folder := range s.Folders {
			if !strings.Contains(folder, "/"+hidden+"/") || path.Base(folderOf(folder)) != hidden {
				return l, fmt.Errorf("file: state of the sink's writer: %q is no folder of pending parts", folder)
			}
			if !slices.Contains(l.folders, folder) {
				l.folders = append(l.folders, folder)
			}
		}
	}
	return l, nil
}

// adopt chooses the folder to write to: the first known one in the sink's directory, else work.
func (l *leftovers) adopt(f fs.FileSystem, root, work string) string {
	in := uriOf(f, root+"/"+hidden)
	for i, folder := range l.folders {
		if folderOf(folder) == in {
			l.folders = append([]string{folder}, slices.Delete(l.folders, i, i+1)...)
			return strings.TrimPrefix(folder, f.URI())
		}
	}
	l.folders = append([]string{uriOf(f, work)}, l.folders...)
	return work
}

// folderOf is the URI of the folder of a URI, whatever letters it has.
func folderOf(uri string) string { return uri[:max(0, strings.LastIndexByte(uri, '/'))] }

func (l *leftovers) state() ([][]byte, error) {
	b, err := json.Marshal(writerState{l.folders})
	if err != nil {
		return nil, fmt.Errorf("file: encode the state of the sink's writer: %w", err)
	}
	return [][]byte{b}, nil
}

// again cleans when some could not be removed and a while has passed.
func (l *leftovers) again(sys *systems) error {
	if !l.waiting || time.Now().Before(l.next) {
		return nil
	}
	return l.clean(sys)
}

// clean removes what may be removed. Folders where nothing of others is left are forgotten.
func (l *leftovers) clean(sys *systems) error {
	l.waiting, l.next = false, time.Now().Add(l.age/12)
	folders := l.folders[:0:0]
	for i, folder := range l.folders {
		wait, err := l.cleanFolder(sys, folder)
		if err != nil {
			return fmt.Errorf("file: clean up after a former run: %w", err)
		}
		if i == 0 || wait {
			folders = append(folders, folder)
		} else {
			tidy(l.ctx.Context, sys, folder)
		}
		l.waiting = l.waiting || wait
	}
	l.folders, l.started = folders, true
	return nil
}

// cleanFolder reports whether there is something that may be removed later.
func (l *leftovers) cleanFolder(sys *systems, folder string) (wait bool, err error) {
	f, dir, err := sys.resolve(l.ctx.Context, folder)
	if err != nil {
		return false, err
	}
	infos, err := f.List(l.ctx.Context, dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, i := range infos {
		p, ok := parsePending(path.Base(i.Path))
		if !ok || i.IsDir || l.keep[uriOf(f, i.Path)] {
			continue
		}
		mine := p.job == short(l.ctx.JobID)
		switch {
		case mine && (l.started || p.subtask%l.ctx.Parallelism != l.ctx.Subtask):
			continue // this attempt's
		case mine, process.Ended(p.process), time.Since(i.ModTime) > l.age:
		default:
			wait = true
			continue
		}
		if err := f.Remove(l.ctx.Context, i.Path, false); err != nil {
			return false, err
		}
	}
	return wait, nil
}

// pending is what the name of a pending part says: "<subtask>-<run>-<number>.<job>[.<process>]".
type pending struct {
	subtask      int
	job, process string
}

func parsePending(name string) (p pending, ok bool) {
	name, mark, _ := strings.Cut(name, ".")
	subtask, _, _ := strings.Cut(name, "-")
	p.job, p.process, _ = strings.Cut(mark, ".")
	var err error
	p.subtask, err = strconv.Atoi(subtask)
	return p, err == nil && p.subtask >= 0
}
