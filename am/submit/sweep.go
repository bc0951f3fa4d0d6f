package submit

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"path"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Bounds of a sweep: it runs beside the submission and must not hold it up.
const (
	sweepTimeout = 2 * time.Second
	sweepAge     = time.Minute // younger folders may belong to a submission that is going on
	sweepMost    = 20
	sweepUnknown = 24 * time.Hour
)

func ended(s yarnpb.YarnApplicationStateProto) bool {
	switch s {
	case yarnpb.YarnApplicationStateProto_FINISHED, yarnpb.YarnApplicationStateProto_FAILED, yarnpb.YarnApplicationStateProto_KILLED:
		return true
	default:
		return false
	}
}

// Forget removes the folder of an application that has ended without having had the time to do it. It is looked for where c has the staging root.
func Forget(ctx context.Context, files *fs.Registry, c config.Configuration, hadoop *conf.Configuration, user string, id yarn.ApplicationID) error {
	root, err := Root(c, hadoop, user)
	if err != nil {
		return err
	}
	f, p, err := files.Resolve(ctx, root)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	return staging.RemoveApplication(ctx, f, path.Join(p, id.String()))
}

// sweep removes the folders of applications that YARN says have ended, with their high-availability data: those that were killed from outside had
// no time to do it. The same for applications that this ResourceManager gave an id a day ago and does not know: their client was killed before
// it had submitted them, or they ended so long ago that they are forgotten. What else YARN does not know may run on
// another cluster that shares the file system: it goes after a day if nothing is in it, which is a client that was killed before its ResourceManager was
// started anew, and stays if there is. Checkpoints and savepoints are in other folders. Then it removes the files of past months that no
// application uses. Nothing that goes wrong here matters.
func (s *submission) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	list, err := s.store.FS().List(ctx, s.store.Path())
	if err != nil {
		return
	}
	mrand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) // many that run must not hide one that ended
	n := 0
	for _, info := range list {
		id, err := yarn.ParseApplicationID(path.Base(info.Path))
		if err != nil || !info.IsDir || time.Since(info.ModTime) < sweepAge || id == s.res.ID {
			continue
		}
		if n++; n > sweepMost {
			break
		}
		rep, err := s.YARN.Report(ctx, id)
		switch {
		case errors.Is(err, yarn.ErrApplicationNotFound) && id.ClusterTimestamp != s.res.ID.ClusterTimestamp && time.Since(info.ModTime) > sweepUnknown:
			if gone, err := s.store.RemoveUnused(ctx, info.Path); err == nil && gone {
				s.Logger.Info().Stringer("app_id", id).Msg("folder of an application that was never submitted removed")
			}
			continue
		case errors.Is(err, yarn.ErrApplicationNotFound) && id.ClusterTimestamp == s.res.ID.ClusterTimestamp && time.Since(info.ModTime) > sweepUnknown:
		case err == nil && ended(rep.GetYarnApplicationState()):
		default:
			continue
		}
		if err := s.store.FS().Remove(ctx, info.Path, true); err == nil {
			s.Logger.Info().Stringer("app_id", id).Msg("folder of an ended application removed")
		}
	}
	if removed, err := s.store.Sweep(ctx); err == nil && len(removed) > 0 {
		s.Logger.Info().Strs("paths", removed).Msg("old files removed from the staging folder")
	}
}
