package submit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// checkOwners looks whether the files that the job is to claim are another job's. The mark of one whose application has ended is taken away: it was
// killed before it could do that itself. Any other refuses the submission, as the application would.
func (s *submission) checkOwners(ctx context.Context, uri string, cp metadata.Checkpoint) error {
	f, p, err := s.FS.Resolve(ctx, uri)
	if err != nil {
		return err
	}
	folders, err := storage.Claims(f.URI()+p, cp)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := s.checkOwner(ctx, folder); err != nil {
			var owned *storage.OwnedError
			if errors.As(err, &owned) {
				return refuse(config.ClaimMode.Key, err, "%s", strings.TrimPrefix(err.Error(), "storage: "))
			}
			return s.unreachable(config.SavepointPath.Key, folder, err)
		}
	}
	return nil
}

func (s *submission) checkOwner(ctx context.Context, folder string) error {
	f, p, err := s.FS.Resolve(ctx, folder)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	err = storage.OwnerOf(ctx, f, p)
	var owned *storage.OwnedError
	if !errors.As(err, &owned) {
		return err
	}
	id, perr := yarn.ParseApplicationID(owned.Owner.By)
	if perr != nil { // not of an application: nobody tells whether it lives
		return err
	}
	report, rerr := s.YARN.Report(ctx, id)
	switch {
	case errors.Is(rerr, yarn.ErrApplicationNotFound): // forgotten, or of another cluster
		return err
	case rerr != nil:
		return fmt.Errorf("%w (whether %s still runs is not known: %w)", err, id, rerr)
	}
	switch report.GetYarnApplicationState() {
	case yarnpb.YarnApplicationStateProto_FINISHED, yarnpb.YarnApplicationStateProto_FAILED, yarnpb.YarnApplicationStateProto_KILLED:
		s.Logger.Info().Str("folder", folder).Str("application", id.String()).Msg("took away the mark of an application that has ended")
		return storage.Disown(ctx, f, p, owned.Owner)
	default:
		return err
	}
}
