package ha

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// What is required of a job's parallelism is a file for each epoch in the job's directory; that of the highest counts. An attempt that goes
// on with requirements stores them under its own epoch first, so that what an earlier one writes late is never read.
const requirementsPrefix = "requirements-"

// StoreRequirements implements Store.
func (s *FileStore) StoreRequirements(ctx context.Context, id graph.JobID, data []byte) error {
	fail := func(err error) error { return fmt.Errorf("ha: store requirements of job %s: %w", id, err) }
	epoch, err := s.owner()
	if err != nil {
		return fail(err)
	}
	s.mu.Lock()
	opened := s.jobs[id] != nil
	s.mu.Unlock()
	if !opened {
		return fail(ErrUnknownJob)
	}
	if err := s.CheckEpoch(ctx); err != nil {
		return fail(err)
	}
	if err := s.replace(ctx, path.Join(s.jobDir(id), requirementsPrefix+strconv.FormatInt(epoch, 10)), data); err != nil {
		return fail(err)
	}
	if err := s.CheckEpoch(ctx); err != nil {
		return fail(err)
	}
	return nil
}

// Requirements implements Store.
func (s *FileStore) Requirements(ctx context.Context, id graph.JobID) ([]byte, error) {
	infos, err := s.fs.List(ctx, s.jobDir(id))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ha: read requirements of job %s: %w", id, err)
	}
	file, highest := "", int64(0)
	for _, i := range infos {
		if rest, ok := strings.CutPrefix(path.Base(i.Path), requirementsPrefix); ok {
			if n, err := strconv.ParseInt(rest, 10, 64); err == nil && n > highest {
				file, highest = path.Join(s.jobDir(id), path.Base(i.Path)), n
			}
		}
	}
	if file == "" {
		return nil, nil
	}
	b, err := fs.ReadFile(ctx, s.fs, file, maxFile)
	if err != nil {
		return nil, fmt.Errorf("ha: read requirements of job %s: %w", id, err)
	}
	return b, nil
}

// StoreRequirements implements Store.
func (m *Memory) StoreRequirements(_ context.Context, id graph.JobID, data []byte) error {
	return m.owned("store requirements", id, func(j *memoryJob) error {
		j.requirements = data
		return nil
	})
}

// Requirements implements Store.
func (m *Memory) Requirements(_ context.Context, id graph.JobID) (data []byte, err error) {
	err = m.locked("read requirements", func(s *memory) error {
		if j := s.jobs[id]; j != nil {
			data = j.requirements
		}
		return nil
	})
	return data, err
}

func (p *patient) Requirements(ctx context.Context, id graph.JobID) (data []byte, err error) {
	err = Await(ctx, p.log, "read requirements", func(ctx context.Context) error {
		data, err = p.Store.Requirements(ctx, id)
		return err
	})
	return data, err
}
