package am

import (
	"context"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/history"
)

// archive keeps the last state of a job that has ended, for thalweg history. That it cannot be kept is no reason for anything.
func (m *master) archive(ctx context.Context, id graph.JobID) {
	dir := config.ArchiveDir.Value(m.app.Config)
	if dir == "" || m.handler == nil {
		return
	}
	f, p, err := m.files.Resolve(ctx, dir)
	if err == nil {
		err = history.Write(ctx, f, p, m.handler, id.String(), m.app.ID)
	}
	if keep := config.HistoryKept.Value(m.app.Config); err == nil && keep > 0 {
		_, err = history.Prune(ctx, f, p, keep)
	}
	if err != nil {
		m.log.Warn().Err(err).Stringer("job_id", id).Str("dir", dir).Str("key", config.ArchiveDir.Key).Msg("the history of a job that has ended could not be kept")
	}
}
