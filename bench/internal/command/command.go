// Package command is what the benchmarks' commands have in common: the process around a run, and how a report is written. Layer: bench; imports
// nothing of ours.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main calls run with the command's arguments, the standard output for the report and the standard error for the progress. It returns when
// run did what it was asked for; after another error, which it tells under name, the process ends with 1. An interrupt or SIGTERM ends ctx.
func Main(name string, run func(ctx context.Context, args []string, out, progress io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// Write writes a report in the format of the flag -o: as indented JSON, or else as text.
func Write(out io.Writer, format string, report any, text func() string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	_, err := io.WriteString(out, text())
	return err
}
