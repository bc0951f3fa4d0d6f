package ha

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
)

// FileStore is a Store in a directory of a file system.
//
//	epoch-<n>            created exclusively by the attempt that acquires epoch n
//	leader-<n>           address of that attempt
//	jobs/<id>/job        the job
//	jobs/<id>/e<epoch>.c<checkpoint>.r<reserved>.<key>    the job's token, an empty file
//	jobs/<id>/taken      exists as soon as the token may be renamed
//	jobs/<id>/open-<epoch> exists as soon as epoch has the token
//	jobs/<id>/requirements-<epoch>  what is required of the job's parallelism
//	jobs/<id>/dir-<key>  where the checkpoints of tokens with that key stand
//	results/<id>         the result of a job that ended
//
// The token is the pointer and the fence at once. It is one file, and everything that happens to a job is one rename of it: the owner
// renames it to store a pointer, a new attempt renames it to its own epoch to take the job over. Renames are atomic and one of two
// that start from the same name fails, so a taken-over owner's next rename finds no source and cannot succeed, however long it was
// stopped before, and the new attempt's rename carries the very last pointer along. That costs one RPC per checkpoint.
type FileStore struct {
	fs   fs.FileSystem
	root string
	log  zerolog.Logger

	mu    sync.Mutex // guards the fields below, never held over I/O
	epoch int64
	jobs  map[graph.JobID]*opened
}

// opened is a job that this store has taken over. Calls for one job come one after another.
type opened struct {
	token  token
	dirs   map[string]bool // keys whose dir file this store has written
	buried bool            // EndJob has done everything
}

// NewFileStore returns a store in the directory root (a path inside of f). It touches nothing.
func NewFileStore(f fs.FileSystem, root string, log zerolog.Logger) *FileStore {
	return &FileStore{fs: f, root: path.Clean("/" + root), log: log.With().Str("component", "ha").Logger(), jobs: map[graph.JobID]*opened{}}
}

var _ Store = (*FileStore)(nil)

const (
	epochPrefix  = "epoch-"
	leaderPrefix = "leader-"
	dirPrefix    = "dir-"
	maxFile      = 64 << 20
)

func (s *FileStore) uri(p string) string { return s.fs.URI() + p }

// damaged is the error about a file whose content cannot be decoded.
func (s *FileStore) damaged(p string, cause error) error {
	return fmt.Errorf("%s: %w (%w)", s.uri(p), ErrDamaged, cause)
}

func (s *FileStore) owner() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == 0 {
		return 0, errors.New("ha: no epoch was acquired")
	}
	return s.epoch, nil
}

// numbered lists the numbers n of files <prefix><n> in the root, ascending.
func (s *FileStore) numbered(ctx context.Context, prefix string) ([]int64, error) {
	infos, err := s.fs.List(ctx, s.root)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, i := range infos {
		if rest, ok := strings.CutPrefix(path.Base(i.Path), prefix); ok {
			if n, err := strconv.ParseInt(rest, 10, 64); err == nil && n > 0 {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// AcquireEpoch implements Store.
func (s *FileStore) AcquireEpoch(ctx context.Context, owner string) (int64, error) {
	fail := func(err error) (int64, error) {
		return 0, fmt.Errorf("ha: acquire epoch in %s: %w", s.uri(s.root), err)
	}
	if err := s.fs.Mkdir(ctx, s.root, 0o700); err != nil {
		return fail(err)
	}
	content, err := json.Marshal(map[string]string{"owner": owner})
	if err != nil {
		return fail(err)
	}
	for {
		taken, err := s.numbered(ctx, epochPrefix)
		if err != nil {
			return fail(err)
		}
		epoch := int64(1)
		if len(taken) > 0 {
			epoch = taken[len(taken)-1] + 1
		}
		switch err := fs.WriteFile(ctx, s.fs, path.Join(s.root, epochPrefix+strconv.FormatInt(epoch, 10)), content, false); {
		case err == nil:
			s.mu.Lock()
			s.epoch, s.jobs = epoch, map[graph.JobID]*opened{}
			s.mu.Unlock()
			s.log.Info().Int64("epoch", epoch).Str("owner", owner).Msg("acquired epoch")
			return epoch, nil
		case !errors.Is(err, iofs.ErrExist):
			return fail(err)
		}
	}
}

// CheckEpoch implements Store.
func (s *FileStore) CheckEpoch(ctx context.Context) error {
	epoch, err := s.owner()
	if err != nil {
		return err
	}
	taken, err := s.numbered(ctx, epochPrefix)
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("ha: check epoch %d: %s is gone: %w", epoch, s.uri(s.root), ErrFenced)
	}
	if err != nil {
		return fmt.Errorf("ha: check epoch %d: %w", epoch, err)
	}
	if len(taken) == 0 || taken[len(taken)-1] != epoch {
		return fmt.Errorf("ha: check epoch %d of %v: %w", epoch, taken, ErrFenced)
	}
	return nil
}

// replace writes a file under a temporary name and renames it. Only the owner may read it.
func (s *FileStore) replace(ctx context.Context, p string, data []byte) error {
	tmp := fs.TempName(p)
	if err := fs.WriteFile(ctx, s.fs, tmp, data, false); err != nil {
		return err
	}
	err := s.fs.Chmod(ctx, tmp, 0o600)
	if err == nil {
		err = s.fs.Rename(ctx, tmp, p)
	}
	if err != nil {
		return errors.Join(err, s.fs.Remove(context.WithoutCancel(ctx), tmp, false))
	}
	return nil
}

func (s *FileStore) jobDir(id graph.JobID) string { return path.Join(s.root, "jobs", id.String()) }
func (s *FileStore) jobFile(id graph.JobID) string {
	return path.Join(s.jobDir(id), "job")
}
func (s *FileStore) resultFile(id graph.JobID) string {
	return path.Join(s.root, "results", id.String())
}

// PutJob implements Store. It writes first and looks for a higher epoch then: an attempt that acquires its epoch after that look sees
// the job, one that acquired it before makes this call fail.
func (s *FileStore) PutJob(ctx context.Context, j Job) error {
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("ha: put job %s: %w", j.ID, err)
	}
	switch old, err := fs.ReadFile(ctx, s.fs, s.jobFile(j.ID), maxFile); {
	case err == nil && !bytes.Equal(old, data):
		return fmt.Errorf("ha: put job %s: another job is stored under this id in %s", j.ID, s.uri(s.jobDir(j.ID)))
	case err == nil:
		return s.CheckEpoch(ctx)
	case !errors.Is(err, iofs.ErrNotExist):
		return fmt.Errorf("ha: put job %s: %w", j.ID, err)
	}
	if err := s.replace(ctx, s.jobFile(j.ID), data); err != nil {
		return fmt.Errorf("ha: put job %s: %w", j.ID, err)
	}
	return s.CheckEpoch(ctx)
}

// Jobs implements Store.
func (s *FileStore) Jobs(ctx context.Context) ([]Job, error) {
	infos, err := s.fs.List(ctx, path.Join(s.root, "jobs"))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ha: list jobs: %w", err)
	}
	var out []Job
	var damaged []error
	for _, i := range infos {
		rawID, err := graph.ParseID(path.Base(i.Path))
		if err != nil {
			continue
		}
		id := graph.JobID{ID: rawID}
		if _, ended, err := s.result(ctx, id); err != nil {
			return nil, err
		} else if ended {
			continue // what its removal left
		}
		tokens, err := s.tokens(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("ha: list jobs: %w", err)
		}
		if t := newest(tokens); t != nil && t.ended != "" {
			continue
		}
		b, err := fs.ReadFile(ctx, s.fs, s.jobFile(id), maxFile)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // being put or being removed
		}
		if err != nil {
			return nil, fmt.Errorf("ha: read job %s: %w", id, err)
		}
		var j Job
		if err := json.Unmarshal(b, &j); err != nil {
			damaged = append(damaged, fmt.Errorf("ha: read job %s: %w", id, s.damaged(s.jobFile(id), err)))
			continue
		}
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b Job) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out, errors.Join(damaged...)
}

// EndJob implements Store. The rename of the token decides; the result file and the removal follow, and OpenJob of a later attempt
// does them again when this one dies in between.
func (s *FileStore) EndJob(ctx context.Context, id graph.JobID, r Result) error {
	failpoint.At("job/end")
	if r.State == "" || strings.ContainsAny(r.State, "./") {
		return fmt.Errorf("ha: end job %s: state %q is not a word", id, r.State)
	}
	s.mu.Lock()
	o := s.jobs[id]
	s.mu.Unlock()
	if o == nil {
		return fmt.Errorf("ha: end job %s: %w", id, ErrUnknownJob)
	}
	if o.token.ended == "" {
		err := s.move(ctx, id, func(t *token) { *t = token{epoch: t.epoch, ended: r.State} })
		if errors.Is(err, ErrFenced) {
			// Nobody but this attempt, which has opened the job, can have ended it when there is none above: the answer was lost, and
			// a late look of an attempt before has buried the job meanwhile.
			if _, ended, rerr := s.result(ctx, id); rerr != nil {
				err = rerr
			} else if ended {
				err = s.CheckEpoch(ctx)
			}
		}
		if err != nil {
			return fmt.Errorf("ha: end job %s: %w", id, err)
		}
	}
	if o.buried {
		return nil
	}
	if err := s.bury(ctx, id, r); err != nil {
		return err
	}
	o.buried = true
	return nil
}

func (s *FileStore) bury(ctx context.Context, id graph.JobID, r Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ha: store result of job %s: %w", id, err)
	}
	if err := s.replace(ctx, s.resultFile(id), data); err != nil {
		return fmt.Errorf("ha: store result of job %s: %w", id, err)
	}
	if err := s.fs.Remove(ctx, s.jobDir(id), true); err != nil {
		return fmt.Errorf("ha: remove job %s: %w", id, err)
	}
	return nil
}

func (s *FileStore) result(ctx context.Context, id graph.JobID) (r Result, ok bool, err error) {
	b, err := fs.ReadFile(ctx, s.fs, s.resultFile(id), maxFile)
	if errors.Is(err, iofs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		if err = json.Unmarshal(b, &r); err != nil {
			err = s.damaged(s.resultFile(id), err)
		}
	}
	if err != nil {
		return r, false, fmt.Errorf("ha: read result of job %s: %w", id, err)
	}
	return r, true, nil
}

// Results implements Store.
func (s *FileStore) Results(ctx context.Context) (map[graph.JobID]Result, error) {
	infos, err := s.fs.List(ctx, path.Join(s.root, "results"))
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("ha: list results: %w", err)
	}
	out := map[graph.JobID]Result{}
	for _, i := range infos {
		rawID, err := graph.ParseID(path.Base(i.Path))
		if err != nil {
			continue
		}
		id := graph.JobID{ID: rawID}
		r, ok, err := s.result(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok {
			out[id] = r
		}
	}
	return out, s.unburied(ctx, out)
}

// ForgetResult implements Store.
func (s *FileStore) ForgetResult(ctx context.Context, id graph.JobID) error {
	if err := s.CheckEpoch(ctx); err != nil {
		return fmt.Errorf("ha: forget result of job %s: %w", id, err)
	}
	s.mu.Lock()
	delete(s.jobs, id)
	s.mu.Unlock()
	if err := s.fs.Remove(ctx, s.resultFile(id), false); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("ha: forget result of job %s: %w", id, err)
	}
	return nil
}

// unburied adds the jobs whose token says that they ended, and whose attempt died before it could write the result.
func (s *FileStore) unburied(ctx context.Context, out map[graph.JobID]Result) error {
	infos, err := s.fs.List(ctx, path.Join(s.root, "jobs"))
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("ha: list results: %w", err)
	}
	for _, i := range infos {
		rawID, err := graph.ParseID(path.Base(i.Path))
		if err != nil {
			continue
		}
		id := graph.JobID{ID: rawID}
		if _, ok := out[id]; ok {
			continue
		}
		tokens, err := s.tokens(ctx, id)
		if err != nil {
			return fmt.Errorf("ha: list results: %w", err)
		}
		if t := newest(tokens); t != nil && t.ended != "" {
			out[id] = Result{State: t.ended, Error: noDetails}
		}
	}
	return nil
}

// noDetails is the result's text when the attempt that ended a job died before it could say more.
const noDetails = "the application attempt that ended the job left no details"

// PublishLeader implements Store.
func (s *FileStore) PublishLeader(ctx context.Context, l Leader) error {
	epoch, err := s.owner()
	if err != nil {
		return err
	}
	l.Epoch = epoch
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("ha: publish leader: %w", err)
	}
	if err := s.replace(ctx, path.Join(s.root, leaderPrefix+strconv.FormatInt(epoch, 10)), data); err != nil {
		return fmt.Errorf("ha: publish leader: %w", err)
	}
	return nil
}

// WatchLeader implements Store. It needs no epoch; errors of the file system are logged and the next look may succeed.
func (s *FileStore) WatchLeader(ctx context.Context, minEpoch int64, poll time.Duration) (Leader, error) {
	ticker := time.NewTicker(max(poll, time.Millisecond))
	defer ticker.Stop()
	for {
		l, ok, err := s.leader(ctx, minEpoch)
		if ok {
			return l, nil
		}
		if err != nil {
			s.log.Debug().Err(err).Msg("cannot look for the leader, trying again")
		}
		select {
		case <-ctx.Done():
			return Leader{}, fmt.Errorf("ha: wait for the leader of epoch %d or later in %s: %w", minEpoch, s.uri(s.root), errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func (s *FileStore) leader(ctx context.Context, minEpoch int64) (l Leader, ok bool, err error) {
	epochs, err := s.numbered(ctx, leaderPrefix)
	if errors.Is(err, iofs.ErrNotExist) {
		return l, false, nil
	}
	if err != nil || len(epochs) == 0 || epochs[len(epochs)-1] < minEpoch {
		return l, false, err
	}
	p := path.Join(s.root, leaderPrefix+strconv.FormatInt(epochs[len(epochs)-1], 10))
	b, err := fs.ReadFile(ctx, s.fs, p, maxFile)
	if err == nil {
		if err = json.Unmarshal(b, &l); err != nil {
			err = s.damaged(p, err)
		}
	}
	return l, err == nil, err
}

// CleanUp implements Store.
func (s *FileStore) CleanUp(ctx context.Context) error {
	if err := s.CheckEpoch(ctx); err != nil {
		return err
	}
	if err := s.fs.Remove(ctx, s.root, true); err != nil {
		return fmt.Errorf("ha: remove %s: %w", s.uri(s.root), err)
	}
	return nil
}
