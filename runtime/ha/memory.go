package ha

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Memory is a Store for the embedded cluster: it lives as long as the process. Attempt gives further owners of the same data.
type Memory struct {
	shared *memory
	epoch  int64
}

type memory struct {
	mu      sync.Mutex
	epoch   int64
	jobs    map[graph.JobID]*memoryJob
	results map[graph.JobID]Result
	endedBy map[graph.JobID]int64
	leader  Leader
	changed chan struct{} // closed and replaced when leader changes
}

type memoryJob struct {
	job      Job
	owner    int64
	pointer  Pointer
	reserved int64
	progress []byte

	requirements []byte
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{shared: &memory{jobs: map[graph.JobID]*memoryJob{}, results: map[graph.JobID]Result{},
		endedBy: map[graph.JobID]int64{}, changed: make(chan struct{})}}
}

// Attempt returns a store with the same data and no epoch yet.
func (m *Memory) Attempt() *Memory { return &Memory{shared: m.shared} }

func (m *Memory) locked(what string, fn func(s *memory) error) error {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	if err := fn(m.shared); err != nil {
		return fmt.Errorf("ha: %s: %w", what, err)
	}
	return nil
}

// owned runs fn for a job that this epoch has opened.
func (m *Memory) owned(what string, id graph.JobID, fn func(j *memoryJob) error) error {
	return m.locked(what+" of job "+id.String(), func(s *memory) error {
		switch j := s.jobs[id]; {
		case j == nil && m.epoch < s.epoch:
			return ErrFenced
		case j == nil, j.owner == 0:
			return ErrUnknownJob
		case j.owner != m.epoch:
			return ErrFenced
		default:
			return fn(j)
		}
	})
}

// AcquireEpoch implements Store.
func (m *Memory) AcquireEpoch(context.Context, string) (int64, error) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.shared.epoch++
	m.epoch = m.shared.epoch
	return m.epoch, nil
}

// CheckEpoch implements Store.
func (m *Memory) CheckEpoch(context.Context) error { return m.locked("check epoch", m.check) }

func (m *Memory) check(s *memory) error {
	if s.epoch != m.epoch {
		return ErrFenced
	}
	return nil
}

// PutJob implements Store.
func (m *Memory) PutJob(_ context.Context, j Job) error {
	return m.locked("put job "+j.ID.String(), func(s *memory) error {
		if err := m.check(s); err != nil {
			return err
		}
		if old := s.jobs[j.ID]; old != nil {
			if old.job.Name != j.Name || !bytes.Equal(old.job.Data, j.Data) {
				return fmt.Errorf("another job is stored under this id")
			}
			return nil
		}
		s.jobs[j.ID] = &memoryJob{job: j}
		return nil
	})
}

// Jobs implements Store.
func (m *Memory) Jobs(context.Context) ([]Job, error) {
	var out []Job
	err := m.locked("list jobs", func(s *memory) error {
		for _, j := range s.jobs {
			out = append(out, j.job)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b Job) int { return slices.Compare(a.ID.ID[:], b.ID.ID[:]) })
	return out, err
}

// OpenJob implements Store.
func (m *Memory) OpenJob(_ context.Context, id graph.JobID) (p Pointer, firstID int64, err error) {
	err = m.locked("open job "+id.String(), func(s *memory) error {
		if _, ended := s.results[id]; ended {
			return ErrEnded
		}
		j := s.jobs[id]
		if j == nil {
			return ErrUnknownJob
		}
		if j.owner > m.epoch {
			return ErrFenced
		}
		if err := m.check(s); err != nil {
			return err
		}
		j.owner = m.epoch
		j.reserved++
		p, firstID = j.pointer, j.reserved
		return nil
	})
	return p, firstID, err
}

// ReserveIDs implements Store.
func (m *Memory) ReserveIDs(_ context.Context, id graph.JobID, upTo int64) error {
	return m.owned("reserve checkpoint numbers", id, func(j *memoryJob) error {
		j.reserved = max(j.reserved, upTo)
		return nil
	})
}

// StorePointer implements Store.
func (m *Memory) StorePointer(_ context.Context, id graph.JobID, p Pointer) error {
	return m.owned("store pointer", id, func(j *memoryJob) error {
		j.pointer, j.reserved = p, max(j.reserved, p.ID+1)
		return nil
	})
}

// StoreProgress implements Store.
func (m *Memory) StoreProgress(_ context.Context, id graph.JobID, data []byte) error {
	return m.owned("store progress", id, func(j *memoryJob) error {
		j.reserved++
		j.progress = bytes.Clone(data)
		return nil
	})
}

// Progress implements Store.
func (m *Memory) Progress(_ context.Context, id graph.JobID) (data []byte, err error) {
	err = m.locked("read progress", func(s *memory) error {
		if j := s.jobs[id]; j != nil {
			data = bytes.Clone(j.progress)
		}
		return nil
	})
	return data, err
}

// Pointer implements Store.
func (m *Memory) Pointer(_ context.Context, id graph.JobID) (p Pointer, err error) {
	err = m.locked("read pointer", func(s *memory) error {
		if j := s.jobs[id]; j != nil {
			p = j.pointer
		}
		return nil
	})
	return p, err
}

// EndJob implements Store.
func (m *Memory) EndJob(_ context.Context, id graph.JobID, r Result) error {
	m.shared.mu.Lock()
	by, ended := m.shared.endedBy[id]
	m.shared.mu.Unlock()
	if ended && by == m.epoch {
		return nil
	}
	return m.owned("end", id, func(*memoryJob) error {
		m.shared.results[id], m.shared.endedBy[id] = r, m.epoch
		delete(m.shared.jobs, id)
		return nil
	})
}

// Results implements Store.
func (m *Memory) Results(context.Context) (map[graph.JobID]Result, error) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	return maps.Clone(m.shared.results), nil
}

// ForgetResult implements Store.
func (m *Memory) ForgetResult(_ context.Context, id graph.JobID) error {
	return m.locked("forget result", func(s *memory) error {
		if err := m.check(s); err != nil {
			return err
		}
		delete(s.results, id)
		delete(s.endedBy, id)
		return nil
	})
}

// PublishLeader implements Store.
func (m *Memory) PublishLeader(_ context.Context, l Leader) error {
	return m.locked("publish leader", func(s *memory) error {
		if err := m.check(s); err != nil {
			return err
		}
		l.Epoch = m.epoch
		s.leader = l
		close(s.changed)
		s.changed = make(chan struct{})
		return nil
	})
}

// WatchLeader implements Store.
func (m *Memory) WatchLeader(ctx context.Context, minEpoch int64, _ time.Duration) (Leader, error) {
	for {
		m.shared.mu.Lock()
		l, changed := m.shared.leader, m.shared.changed
		m.shared.mu.Unlock()
		if l.Epoch > 0 && l.Epoch >= minEpoch {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return Leader{}, fmt.Errorf("ha: wait for the leader of epoch %d or later: %w", minEpoch, ctx.Err())
		case <-changed:
		}
	}
}

// CleanUp implements Store.
func (m *Memory) CleanUp(context.Context) error {
	return m.locked("clean up", func(s *memory) error {
		if err := m.check(s); err != nil {
			return err
		}
		s.jobs, s.results, s.endedBy, s.leader = map[graph.JobID]*memoryJob{}, map[graph.JobID]Result{}, map[graph.JobID]int64{}, Leader{}
		return nil
	})
}
