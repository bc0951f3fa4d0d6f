package coordinator

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// folderPatience bounds how long whoever asks for a savepoint waits for its folder: shorter than clients wait for an answer.
const folderPatience = 10 * time.Second

// TryFolder says before anything is triggered why no savepoint can be written below dir, the full URI of a folder: it makes the folder, as
// Flink does, and in it a folder that it removes again. It returns nil for what may pass, such as a store that cannot be reached now: the
// savepoint tries that for longer.
//
// Source: Flink FsCheckpointStorageAccess.initializeLocationForSavepoint, 2.3.
func TryFolder(ctx context.Context, files *fs.Registry, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, folderPatience)
	defer cancel()
	err := tryFolder(ctx, files, storage.NewSavepointDir(dir, graph.JobID{}))
	if err == nil || !permanent(err) && (errors.Is(err, fs.ErrUnavailable) || ctx.Err() != nil) {
		return nil
	}
	if errors.Is(err, iofs.ErrNotExist) { // such as /proc, of which the error says no more than that
		return fmt.Errorf("the folder %s cannot be made: %w", dir, err)
	}
	return fmt.Errorf("nothing can be written in the folder %s: %w", dir, err)
}

func tryFolder(ctx context.Context, files *fs.Registry, uri string) error {
	f, p, err := files.Resolve(ctx, uri)
	if err != nil {
		return err
	}
	if err = f.Mkdir(ctx, p, 0o755); err == nil {
		err = f.Remove(ctx, p, false)
	}
	return errors.Join(err, f.Close())
}
