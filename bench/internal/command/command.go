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
	"path/filepath"
	"slices"
	"strings"
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

// Choice adds a flag that takes one of values. *p is its default.
func Choice(f *flag.FlagSet, p *string, name, usage string, values ...string) {
	if *p != "" {
		usage += " (default " + *p + ")"
	}
	f.Func(name, usage, func(v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("want %s", strings.Join(values, " or "))
		}
		*p = v
		return nil
	})
}

// Output adds the flag -o, the format for Write.
func Output(f *flag.FlagSet, p *string) {
	*p = "text"
	Choice(f, p, "o", "text or json", "text", "json")
}

// Saving adds the flag -save, which says whether to call Save.
func Saving(f *flag.FlagSet, p *bool) {
	f.BoolVar(p, "save", false, "write a dated Markdown file to bench/results")
}

// Save writes a report as Markdown to the results of the checkout at root, in a file that is named after what was measured and when
// (RFC 3339).
func Save(root, what, date, markdown string, progress io.Writer) error {
	dir := filepath.Join(root, "bench", "results")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, what+"-"+strings.NewReplacer(":", "", "-", "").Replace(date)+".md")
	if err := os.WriteFile(path, []byte(markdown), 0o644); err != nil {
		return err
	}
	_, err := fmt.Fprintln(progress, "saved", path)
	return err
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
