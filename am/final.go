package am

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// finalError marks what the next attempt would meet as well.
type finalError struct{ err error }

func (e finalError) Error() string { return e.err.Error() }
func (e finalError) Unwrap() error { return e.err }

// final reports whether the application ends with err: the user has to mend something, or what the attempts share is damaged. YARN does
// not count attempts that fail one after another slowly (yarn.application-attempt-failures-validity-interval), so that such an error would
// bring up attempts for ever. Everything else may be this attempt's or this machine's own, and ends the attempt only.
func final(err error) bool {
	var plan *PlanError
	var protocol *container.ProtocolError
	var marked finalError
	return errors.As(err, &plan) || errors.As(err, &protocol) || errors.As(err, &marked) || errors.Is(err, ha.ErrDamaged)
}

// shared marks an error of a file system that all attempts use. What is unavailable is waited for elsewhere.
func shared(err error) error {
	if errors.Is(err, iofs.ErrPermission) && !errors.Is(err, ipc.ErrInvalidToken) { // YARN hands out fresh tokens
		return finalError{err}
	}
	return err
}

// refuse ends the application before there is a Manager, for which the attempt has to be registered.
func (m *master) refuse(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	m.log.Info().Stringer("status", resourcemanager.StatusFailed).Str("diagnostics", cause.Error()).Msg("the application ends")
	s := m.scheduler
	if s == nil {
		s = m.rm
	}
	// Registered already, when the wait for the data was ended in the middle of it: then only what follows counts.
	_, registered := s.Register(ctx, rmclient.Registration{Host: m.c.Host, RPCPort: -1, TrackingURL: m.webURL})
	text := limitLines(m.app.Config.Redact(cause.Error()), maxDiagnostics)
	if err := s.Finish(ctx, yarnpb.FinalApplicationStatusProto_APP_FAILED, text, ""); err != nil {
		return fmt.Errorf("am: unregister with %w: %w", cause, errors.Join(registered, err))
	}
	if err := m.removeStaging(ctx); err != nil {
		m.log.Warn().Err(err).Str("dir", m.app.Staging).Msg("the staging folder could not be removed")
	}
	return nil
}
