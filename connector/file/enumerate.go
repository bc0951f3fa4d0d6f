package file

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
)

// Enumerator is what the source's enumerator offers to others, such as the switch of a hybrid source.
type Enumerator interface {
	connector.Enumerator
	// Newest is the latest modification time of the files that were listed, zero when there are none.
	Newest() time.Time
}

// enumerator hands out splits to readers that ask. Its state is what was not handed out, and, when it monitors, which files it knows.
type enumerator struct {
	cfg     *sourceConfig
	ctx     connector.EnumeratorContext
	st      enumeratorState
	waiting []int            // subtasks that asked in vain, in order
	before  map[string]found // of the last listing, not taken yet
}

// enumeratorState is the wire form (JSON).
type enumeratorState struct {
	Version int              `json:"v"`
	Listed  bool             `json:"listed"` // the paths were listed, once at least
	Pending []split          `json:"pending"`
	Known   map[string]int64 `json:"known,omitempty"` // modification time by URI, when monitoring
	Newest  int64            `json:"newest,omitempty"`
}

type found struct {
	uri  string
	size int64
	mod  time.Time
}

func newEnumerator(cfg *sourceConfig, ctx connector.EnumeratorContext, restored []byte) (*enumerator, error) {
	e := &enumerator{cfg: cfg, ctx: ctx, st: enumeratorState{Version: splitVersion}, before: map[string]found{}}
	if restored != nil {
		e.st = enumeratorState{}
		if err := json.Unmarshal(restored, &e.st); err != nil {
			return nil, fmt.Errorf("file: state of the enumerator is not valid: %w", err)
		}
		if e.st.Version != splitVersion {
			return nil, fmt.Errorf("file: state of the enumerator has version %d, this build knows %d", e.st.Version, splitVersion)
		}
	}
	if e.st.Known == nil {
		e.st.Known = map[string]int64{}
	}
	return e, nil
}

func (e *enumerator) Start(context.Context) error {
	if e.st.Listed && e.cfg.monitor == 0 {
		return nil
	}
	e.ctx.Async(e.cfg.monitor, func(ctx context.Context) (any, error) { return list(ctx, e.ctx.Files(), e.cfg) }, func(r any, err error) {
		var lasting lastingError
		switch {
		case err == nil:
			e.listed(r.([]found))
		case e.cfg.monitor > 0 && e.st.Listed && !errors.As(err, &lasting):
			log := e.ctx.Logger()
			log.Warn().Err(err).Msg("the source's paths could not be listed; trying again")
		default:
			e.ctx.Fail(err)
		}
	})
	return nil
}

// list lists all files, in order.
func list(ctx context.Context, reg *fs.Registry, cfg *sourceConfig) (all []found, err error) {
	sys := systems{reg: reg}
	defer func() {
		if cerr := sys.close(); err == nil {
			err = cerr
		}
	}()
	seen := map[string]bool{}
	for _, uri := range cfg.paths {
		f, p, err := sys.resolve(ctx, uri)
		if err != nil {
			return nil, fmt.Errorf("file: list %s: %w", uri, err)
		}
		info, err := f.Stat(ctx, p)
		if err == nil {
			wanted := func(i fs.Info) bool {
				if cfg.match == "" || i.Path == info.Path {
					return true
				}
				ok, _ := path.Match(cfg.match, path.Base(i.Path)) // the pattern was checked
				return ok
			}
			err = walk(ctx, f, info, true, wanted, func(i fs.Info) {
				if u := uriOf(f, i.Path); !seen[u] {
					seen[u] = true
					all = append(all, found{u, i.Size, i.ModTime})
				}
			})
		}
		if err != nil {
			return nil, fmt.Errorf("file: list %s: %w", uri, err)
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.uri, b.uri) })
	return all, nil
}

// walk calls file for the wanted files at and below at. Links to files count as files, under their own names; links to folders below the root are refused: they may
// lead in circles, or to files that are read already.
func walk(ctx context.Context, f fs.FileSystem, at fs.Info, root bool, wanted func(fs.Info) bool, file func(fs.Info)) error {
	if base := path.Base(at.Path); !root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
		return nil
	}
	if at.Irregular {
		to, err := f.Stat(ctx, at.Path)
		switch {
		case err == nil && to.IsDir:
			return fmt.Errorf("%s is a link to a folder, which is not followed: add the folder to file.Paths and take the link away, or give it a name that begins with _", at.Path)
		case !wanted(at):
			return nil
		case errors.Is(err, iofs.ErrNotExist):
			return fmt.Errorf("%s is a link that leads nowhere: take it away or mend it: %w", at.Path, err)
		case err != nil:
			return err
		case to.Irregular:
			return fmt.Errorf("%s is neither a file nor a folder", at.Path)
		}
		at = to
	}
	if !at.IsDir {
		if wanted(at) {
			file(at)
		}
		return nil
	}
	infos, err := f.List(ctx, at.Path)
	if errors.Is(err, iofs.ErrNotExist) && !root {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	for _, i := range infos {
		if err := walk(ctx, f, i, false, wanted, file); err != nil {
			return err
		}
	}
	return nil
}

// listed takes a listing.
func (e *enumerator) listed(files []found) {
	next := map[string]found{}
	for _, f := range files {
		if e.cfg.monitor > 0 {
			if _, ok := e.st.Known[f.uri]; ok {
				continue
			}
			if b, ok := e.before[f.uri]; !ok || b != f {
				next[f.uri] = f
				continue
			}
			e.st.Known[f.uri] = f.mod.UnixMilli()
		}
		e.st.Newest = max(e.st.Newest, f.mod.UnixMilli())
		e.st.Pending = append(e.st.Pending, cut(f.uri, f.size, f.mod, e.cfg.splitSize)...)
	}
	e.before = next
	e.st.Listed = true
	waiting := e.waiting
	e.waiting = nil
	for _, sub := range waiting {
		e.HandleSplitRequest(sub)
	}
}

// Newest implements Enumerator.
func (e *enumerator) Newest() time.Time {
	if e.st.Newest == 0 {
		return time.Time{}
	}
	return time.UnixMilli(e.st.Newest).UTC()
}

func (e *enumerator) AddReader(int) {} // readers ask

func (e *enumerator) HandleSplitRequest(subtask int) {
	switch {
	case len(e.st.Pending) > 0:
		s := e.st.Pending[0]
		cs, err := s.encode()
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		e.st.Pending = e.st.Pending[1:]
		e.ctx.Assign(subtask, cs)
	case e.cfg.monitor == 0 && e.st.Listed:
		e.ctx.NoMoreSplits(subtask)
	default:
		e.waiting = append(e.waiting, subtask)
	}
}

func (e *enumerator) AddSplitsBack(splits []connector.Split, _ int) {
	for _, cs := range splits {
		s, err := decodeSplit(cs)
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		e.st.Pending = append(e.st.Pending, *s)
	}
	waiting := e.waiting
	e.waiting = nil
	for _, sub := range waiting {
		e.HandleSplitRequest(sub)
	}
}

func (e *enumerator) Snapshot(int64) ([]byte, error) { return json.Marshal(e.st) }

func (e *enumerator) CheckpointComplete(int64) {}

func (e *enumerator) Close() error { return nil }
