package main

import (
	"context"
	"errors"
	"strings"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/staging/artifact"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitInterrupted = 130
	exitClosed      = 141 // nobody read the rest of the output, as a shell reports SIGPIPE
)

// exitError carries an exit code of its own, such as that of a program that ran here. A nil error says nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// report prints the error and returns the exit code.
func (c *cli) report(err error) int {
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		text = errInterrupted.Error()
	}
	if text != "" {
		if c.json() {
			_ = c.emit(map[string]any{"event": "error", "error": text, "exitCode": code}) // nobody reads it any more
		} else {
			c.notef("thalweg: %s", strings.TrimSpace(text))
		}
	}
	return code
}

func exitCode(err error) int {
	var (
		own     *exitError
		usage   *usageError
		art     *artifact.Error
		queue   *client.QueueNotFoundError
		size    *submit.SizeError
		option  *submit.ConfigError
		lib     *submit.LibError
		stage   *staging.Error
		rm      *client.UnreachableError
		master  *control.UnreachableError
		refused *client.SubmissionError
		which   *control.SelectionError
	)
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &rm), errors.As(err, &master), errors.Is(err, fs.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	case errors.As(err, &usage), errors.As(err, &art), errors.As(err, &queue), errors.As(err, &size), errors.As(err, &option), errors.As(err, &lib), errors.As(err, &stage),
		errors.As(err, &refused), errors.As(err, &which), errors.Is(err, yarn.ErrMalformed), errors.Is(err, control.ErrNotGiven), errors.Is(err, control.ErrNotFound), strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	}
	return exitFailed
}
