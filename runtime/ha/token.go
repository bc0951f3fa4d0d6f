package ha

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// token is the content of a token's name.
type token struct {
	epoch, id, reserved int64
	key                 string // of the dir file; "none" without checkpoint
	ended               string // final state; the rest but epoch is zero then
}

const noKey = "none"

func (t token) name() string {
	if t.ended != "" {
		return fmt.Sprintf("e%d.ended.%s", t.epoch, t.ended)
	}
	return fmt.Sprintf("e%d.c%d.r%d.%s", t.epoch, t.id, t.reserved, t.key)
}

func parseToken(name string) (t token, ok bool) {
	p := strings.Split(name, ".")
	num := func(s, prefix string) int64 {
		rest, found := strings.CutPrefix(s, prefix)
		n, err := strconv.ParseInt(rest, 10, 64)
		ok = ok && found && err == nil && n >= 0
		return n
	}
	ok = true
	switch {
	case len(p) == 3 && p[1] == "ended" && p[2] != "":
		t = token{epoch: num(p[0], "e"), ended: p[2]}
	case len(p) == 4 && p[3] != "":
		t = token{epoch: num(p[0], "e"), id: num(p[1], "c"), reserved: num(p[2], "r"), key: p[3]}
	default:
		return token{}, false
	}
	return t, ok && t.name() == name
}

// newest is the token that counts: of the highest epoch. There is one only, but for what an attempt that was fenced while it created
// the first one left behind.
func newest(tokens []token) *token {
	var best *token
	for i := range tokens {
		t := &tokens[i]
		if best == nil || t.epoch > best.epoch || t.epoch == best.epoch && (t.ended != "" || t.id > best.id || t.id == best.id && t.reserved > best.reserved) {
			best = t
		}
	}
	return best
}

// markName is a file that exists before a job's token is renamed for the first time. A listing of a local directory may miss a file
// that is renamed meanwhile (HDFS's is atomic), and a token that was missed must not be created anew.
const markName = "taken"

// openPrefix begins a file that an attempt creates when the token is its own, with its epoch: from then on there is a token of that epoch or
// a higher one. A listing that shows only lower ones has missed it, and shows what an attempt that was too late to create the first token left.
const openPrefix = "open-"

// A token is missed by a listing when it is renamed during it; that many listings in a row do not miss it.
const (
	listPause = time.Millisecond
	listTries = 500
)

// tokens lists a job's tokens; none when the job has none, or is unknown. ErrDamaged when somebody has removed the token.
//
// A listing without tokens counts when a second one, begun after it, shows no mark either: a token that the first one missed because
// it was renamed had the mark beside it by then. One that was missed because it was just being created is not accepted by its
// creator, who looks for a higher epoch afterwards.
func (s *FileStore) tokens(ctx context.Context, id graph.JobID) (out []token, err error) {
	for try := 0; ; try++ {
		infos, err := s.fs.List(ctx, s.jobDir(id))
		if errors.Is(err, iofs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		marked, least := false, int64(0)
		out = out[:0]
		for _, i := range infos {
			if rest, ok := strings.CutPrefix(path.Base(i.Path), openPrefix); ok {
				if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
					least = max(least, n)
				}
			}
			if t, ok := parseToken(path.Base(i.Path)); ok {
				out = append(out, t)
			}
			marked = marked || path.Base(i.Path) == markName
		}
		switch {
		case len(out) > 0 && newest(out).epoch >= least, len(out) == 0 && !marked && try > 0:
			return out, nil
		case len(out) == 0 && !marked:
			continue
		}
		// Either it was renamed meanwhile, or the job has ended and this is what somebody who came late has left.
		if _, ended, err := s.result(ctx, id); err != nil || ended {
			return nil, err
		}
		if try == listTries {
			return nil, fmt.Errorf("%s has lost its token file: %w", s.uri(s.jobDir(id)), ErrDamaged)
		}
		timer := time.NewTimer(listPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// OpenJob implements Store.
func (s *FileStore) OpenJob(ctx context.Context, id graph.JobID) (Pointer, int64, error) {
	fail := func(err error) (Pointer, int64, error) {
		return Pointer{}, 0, fmt.Errorf("ha: open job %s: %w", id, err)
	}
	epoch, err := s.owner()
	if err != nil {
		return fail(err)
	}
	if _, ok, err := s.result(ctx, id); err != nil || ok {
		return fail(errors.Join(err, endedIf(ok)))
	}
	for ctx.Err() == nil {
		tokens, err := s.tokens(ctx, id)
		if err != nil {
			return fail(err)
		}
		best := newest(tokens)
		if best == nil {
			if best, err = s.firstToken(ctx, id, epoch); err != nil {
				return fail(err)
			}
		}
		switch {
		case best.ended != "":
			if _, ok, err := s.result(ctx, id); err != nil {
				return fail(err)
			} else if !ok { // the attempt that ended it died before it could say more
				if err := s.bury(ctx, id, Result{State: best.ended, Error: noDetails}); err != nil {
					return fail(err)
				}
			}
			return fail(ErrEnded)
		case best.epoch > epoch:
			return fail(ErrFenced)
		}
		if err := fs.WriteFile(ctx, s.fs, path.Join(s.jobDir(id), markName), nil, false); err != nil && !errors.Is(err, iofs.ErrExist) {
			return fail(err)
		}
		mine := *best
		mine.epoch, mine.reserved = epoch, best.reserved+1
		switch err := s.fs.Rename(ctx, path.Join(s.jobDir(id), best.name()), path.Join(s.jobDir(id), mine.name())); {
		case errors.Is(err, iofs.ErrNotExist):
			continue // its owner stored a pointer, or a newer attempt took it: look again
		case err != nil:
			return fail(err)
		}
		if err := fs.WriteFile(ctx, s.fs, path.Join(s.jobDir(id), openPrefix+strconv.FormatInt(epoch, 10)), nil, false); err != nil && !errors.Is(err, iofs.ErrExist) {
			return fail(err)
		}
		// A token that its creator did not get to check may stand beside a newer attempt's: only when no higher epoch exists now will
		// every later one find this token.
		if err := s.CheckEpoch(ctx); err != nil {
			return fail(err)
		}
		// And one that was created after the job had ended and its directory was gone has the result beside it.
		if _, ok, err := s.result(ctx, id); err != nil || ok {
			if ok {
				err = errors.Join(ErrEnded, s.fs.Remove(ctx, s.jobDir(id), true))
			}
			return fail(err)
		}
		for _, t := range tokens {
			if t != *best {
				if err := s.fs.Remove(ctx, path.Join(s.jobDir(id), t.name()), false); err != nil {
					return fail(err)
				}
			}
		}
		p, err := s.pointer(ctx, id, mine)
		if errors.Is(err, iofs.ErrNotExist) {
			err = errors.Join(s.CheckEpoch(ctx), err) // else a newer attempt has ended the job meanwhile
		}
		if err != nil {
			return fail(err)
		}
		s.mu.Lock()
		s.jobs[id] = &opened{token: mine, dirs: map[string]bool{}}
		s.mu.Unlock()
		return p, mine.reserved, nil
	}
	return fail(ctx.Err())
}

func endedIf(ended bool) error {
	if ended {
		return ErrEnded
	}
	return nil
}

// firstToken creates a job's token; OpenJob looks for a higher epoch afterwards.
func (s *FileStore) firstToken(ctx context.Context, id graph.JobID, epoch int64) (*token, error) {
	if _, ok, err := s.result(ctx, id); err != nil || ok {
		return nil, errors.Join(err, endedIf(ok))
	}
	if _, err := s.fs.Stat(ctx, s.jobFile(id)); err != nil {
		if errors.Is(err, iofs.ErrNotExist) {
			return nil, ErrUnknownJob
		}
		return nil, err
	}
	t := token{epoch: epoch, key: noKey}
	err := fs.WriteFile(ctx, s.fs, path.Join(s.jobDir(id), t.name()), nil, false)
	if err != nil && !errors.Is(err, iofs.ErrExist) {
		return nil, err
	}
	return &t, nil
}

// place is the content of a dir file: where a checkpoint stands. Numbered: in Dir + "/chk-<id>".
type place struct {
	Dir      string `json:"dir"`
	Numbered bool   `json:"numbered"`
}

func (p place) dir(id int64) string {
	if p.Numbered {
		return p.Dir + "/chk-" + strconv.FormatInt(id, 10)
	}
	return p.Dir
}

func placeOf(p Pointer) place {
	if dir, ok := strings.CutSuffix(p.Dir, "/chk-"+strconv.FormatInt(p.ID, 10)); ok {
		return place{Dir: dir, Numbered: true}
	}
	return place{Dir: p.Dir}
}

func (s *FileStore) pointer(ctx context.Context, id graph.JobID, t token) (Pointer, error) {
	if t.key == noKey || t.key == "" {
		return Pointer{}, nil
	}
	p := path.Join(s.jobDir(id), dirPrefix+t.key)
	b, err := fs.ReadFile(ctx, s.fs, p, maxFile)
	if errors.Is(err, iofs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return Pointer{}, fmt.Errorf("read the pointer to checkpoint %d: %w", t.id, err)
	}
	var at place
	if err := json.Unmarshal(b, &at); err != nil {
		return Pointer{}, fmt.Errorf("read the pointer to checkpoint %d: %w", t.id, s.damaged(p, err))
	}
	return Pointer{ID: t.id, Dir: at.dir(t.id)}, nil
}

// Pointer implements Store.
func (s *FileStore) Pointer(ctx context.Context, id graph.JobID) (Pointer, error) {
	tokens, err := s.tokens(ctx, id)
	if err != nil {
		return Pointer{}, fmt.Errorf("ha: read pointer of job %s: %w", id, err)
	}
	best := newest(tokens)
	if best == nil || best.ended != "" {
		return Pointer{}, nil
	}
	p, err := s.pointer(ctx, id, *best)
	if errors.Is(err, iofs.ErrNotExist) {
		if _, serr := s.fs.Stat(ctx, s.jobDir(id)); errors.Is(serr, iofs.ErrNotExist) {
			return Pointer{}, nil // the job ended meanwhile
		}
	}
	if err != nil {
		return Pointer{}, fmt.Errorf("ha: read pointer of job %s: %w", id, err)
	}
	return p, nil
}

// StorePointer implements Store. One rename; the first for a directory writes a file before.
func (s *FileStore) StorePointer(ctx context.Context, id graph.JobID, p Pointer) error {
	fail := func(err error) error {
		return fmt.Errorf("ha: store pointer of job %s to checkpoint %d: %w", id, p.ID, err)
	}
	at := placeOf(p)
	data, err := json.Marshal(at)
	if err != nil {
		return fail(err)
	}
	sum := sha256.Sum256(data)
	key := hex.EncodeToString(sum[:6])
	s.mu.Lock()
	o := s.jobs[id]
	s.mu.Unlock()
	if o == nil {
		return fail(ErrUnknownJob)
	}
	if !o.dirs[key] {
		// The name is the content's hash: whoever writes it writes the same. A superseded attempt must not make the directory of a
		// job anew that has ended, hence no write without the token.
		if err := s.move(ctx, id, func(*token) {}); err != nil {
			return fail(err)
		}
		if err := s.replace(ctx, path.Join(s.jobDir(id), dirPrefix+key), data); err != nil {
			return fail(err)
		}
		o.dirs[key] = true
	}
	err = s.move(ctx, id, func(t *token) {
		t.id, t.key, t.reserved = p.ID, key, max(t.reserved, p.ID+1)
	})
	if err != nil {
		return fail(err)
	}
	return nil
}

// ReserveIDs implements Store.
func (s *FileStore) ReserveIDs(ctx context.Context, id graph.JobID, upTo int64) error {
	if err := s.move(ctx, id, func(t *token) { t.reserved = max(t.reserved, upTo) }); err != nil {
		return fmt.Errorf("ha: reserve checkpoint numbers of job %s: %w", id, err)
	}
	return nil
}

// move renames the token of an opened job to what change makes of it. When the name has not changed it only looks whether the token is
// still there. After an error other than ErrFenced and ErrUnknownJob the outcome is unknown; the same call may be repeated.
func (s *FileStore) move(ctx context.Context, id graph.JobID, change func(*token)) error {
	s.mu.Lock()
	o := s.jobs[id]
	s.mu.Unlock()
	if o == nil {
		return ErrUnknownJob
	}
	for ctx.Err() == nil {
		cur := o.token
		if cur.ended != "" {
			return ErrEnded
		}
		next := cur
		change(&next)
		from, to := path.Join(s.jobDir(id), cur.name()), path.Join(s.jobDir(id), next.name())
		var err error
		if from == to {
			_, err = s.fs.Stat(ctx, from)
		} else {
			err = s.fs.Rename(ctx, from, to)
		}
		if err == nil {
			o.token = next
			return nil
		}
		if !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		// Either an earlier try of ours did happen, or a newer attempt has the token.
		found, lerr := s.mine(ctx, id, cur.epoch)
		if errors.Is(lerr, ErrDamaged) {
			found, lerr = s.renew(ctx, id, cur)
		}
		if lerr != nil {
			return lerr
		}
		if o.token = *found; *found == next {
			return nil
		}
	}
	return ctx.Err()
}

// mine finds the token of our epoch, or ErrFenced.
func (s *FileStore) mine(ctx context.Context, id graph.JobID, epoch int64) (*token, error) {
	tokens, err := s.tokens(ctx, id)
	if err != nil {
		return nil, err
	}
	if best := newest(tokens); best != nil && best.epoch == epoch {
		return best, nil
	}
	return nil, ErrFenced
}

// renew makes the token of an opened job anew that somebody has removed: its owner knows what it said. As with the first one, only when
// no higher epoch exists afterwards will every later attempt find it.
func (s *FileStore) renew(ctx context.Context, id graph.JobID, t token) (*token, error) {
	if err := s.CheckEpoch(ctx); err != nil {
		return nil, err
	}
	p := path.Join(s.jobDir(id), t.name())
	if err := fs.WriteFile(ctx, s.fs, p, nil, false); err != nil && !errors.Is(err, iofs.ErrExist) {
		return nil, err
	}
	if err := s.CheckEpoch(ctx); err != nil {
		if errors.Is(err, ErrFenced) {
			err = errors.Join(err, s.fs.Remove(ctx, p, false))
		}
		return nil, err
	}
	s.log.Warn().Str("file", s.uri(p)).Msg("the job's token file was removed by somebody; it is there again")
	return &t, nil
}
