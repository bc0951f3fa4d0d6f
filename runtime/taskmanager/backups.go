package taskmanager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/process"
)

// backupFolder is what Flink calls the folder of local state copies, too.
const backupFolder = "localState"

// makeBackups makes the folders for local copies of checkpoints: in those that are configured, else in the private ones.
func (t *TaskManager) makeBackups() error {
	var bad []error
	roots := config.LocalBackupDirs.Value(t.opts.Config)
	for _, d := range roots {
		p, err := backupDir(d)
		if err != nil {
			bad = append(bad, err)
			t.log.Warn().Err(err).Str("dir", d).Msg("folder for local copies of checkpoints is skipped")
			continue
		}
		t.extra = append(t.extra, p)
		t.backups = append(t.backups, filepath.Join(p, backupFolder))
	}
	if len(roots) > 0 {
		if len(t.extra) == 0 {
			return fmt.Errorf("taskmanager: no folder for local copies of checkpoints is usable (%s): %w", config.LocalBackupDirs.Key, errors.Join(bad...))
		}
		return nil
	}
	for _, d := range t.dirs {
		t.backups = append(t.backups, filepath.Join(d, backupFolder))
	}
	return nil
}

// backupDir makes a private folder below d. What TaskManagers left there that were killed is of no use to anybody, and removed.
func backupDir(d string) (string, error) {
	err := os.MkdirAll(d, 0o750)
	if err != nil {
		return "", fmt.Errorf("taskmanager: folder %s: %w", d, err)
	}
	p, err := process.FolderKeeping(d, "thalweg-local-", 0)
	if err != nil {
		return "", fmt.Errorf("taskmanager: folder %s: %w", d, err)
	}
	return p, nil
}

// backupDirs are a job's.
func (t *TaskManager) backupDirs(job string) []string {
	out := make([]string, len(t.backups))
	for i, d := range t.backups {
		out[i] = filepath.Join(d, "job-"+filepath.Base(job))
	}
	return out
}

// dropBackups removes a job's copies in the background; t.mu is held. They move first, so that a worker that is started meanwhile has its own.
func (t *TaskManager) dropBackups(job string) {
	var gone []string
	for _, d := range t.backupDirs(job) {
		t.dropped++
		to := fmt.Sprintf("%s.gone-%d", d, t.dropped)
		if os.Rename(d, to) == nil { // else there is none
			gone = append(gone, to)
		}
	}
	if len(gone) == 0 {
		return
	}
	t.wg.Go(func() {
		for _, d := range gone {
			if err := os.RemoveAll(d); err != nil {
				t.log.Warn().Err(err).Str("dir", d).Msg("local copies of checkpoints could not be removed")
			}
		}
	})
}

func (t *TaskManager) removeFolders() error {
	var errs []error
	for _, d := range slices.Concat(t.dirs, t.extra) {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}
