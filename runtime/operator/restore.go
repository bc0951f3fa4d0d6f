package operator

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/state/canonical"
)

// lastingError is a failure that every restart would meet again.
type lastingError struct{ err error }

// lasting is fmt.Errorf of such a failure.
func lasting(format string, args ...any) error { return lastingError{fmt.Errorf(format, args...)} }

func (e lastingError) Error() string { return e.err.Error() }
func (e lastingError) Unwrap() error { return e.err }

// Fatal tells the task that a restart is no use.
func (e lastingError) Fatal() bool { return true }

// Lasting is fmt.Errorf of a failure that every restart would meet again.
func Lasting(format string, args ...any) error { return lasting(format, args...) }

// damagedError is a lastingError about state that is not what was written.
type damagedError struct{ lastingError }

// Damaged tells the task that another checkpoint may be restored.
func (damagedError) Damaged() bool { return true }

func damaged(format string, args ...any) error {
	return damagedError{lastingError{fmt.Errorf(format, args...)}}
}

// another is what there is to do about state that cannot be read.
const another = "start the job from another checkpoint or savepoint"

// Unreadable marks an error about records that were under way in the checkpoint that is restored: no restart reads a file that is missing or
// damaged, but another checkpoint may be restored, or records that this job cannot take.
func Unreadable(err error) error {
	var file *storage.StateFileError
	switch {
	case errors.As(err, &file):
		return damaged("%w; %s", err, another)
	case errors.Is(err, ErrCorrupt):
		return lasting("%w; %s", err, another)
	case errors.Is(err, ErrUnkeyed):
		return lastingError{err}
	}
	return err
}

// restoring attributes an error that came up when state was opened or restored. Of what went wrong beside a state file that is missing or
// damaged, such as the downloads that were given up then, nothing is said.
func (c *Context) restoring(what string, err error) error {
	var file *storage.StateFileError
	var content *canonical.CorruptError
	switch {
	case errors.As(err, &file):
		err = damaged("restore: %w; %s", file, another)
	case errors.As(err, &content):
		err = damaged("restore: %w; %s", content, another)
	case errors.Is(err, canonical.ErrCorrupt):
		err = damaged("%w; %s", err, another)
	}
	return c.wrap(fmt.Errorf("%s: %w", what, err))
}

// undecodable attributes an error about the content of an operator's own state.
func (c *Context) undecodable(what string, err error) error {
	return c.wrap(lastingError{fmt.Errorf("restore %s: %w; %s", what, err, another)})
}
