package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// forbidden are words that no log of ours may hold: they mean a fault of the product, whatever the job did. The stack of a user's panic
// is logged as a field and begins with the word goroutine after a quote.
var forbidden = regexp.MustCompile(`(?m)^panic: |^fatal error: |WARNING: DATA RACE|leaked goroutine|found unexpected goroutines|nil pointer dereference|index out of range \[|` +
	`^goroutine \d+ \[|all goroutines are asleep|concurrent map|send on closed channel|%!\w\(|` + secret)

// leftovers checks, after all tests, what this run's applications have left: nothing runs, no folder is there, no log is amiss.
func leftovers(ctx context.Context) error {
	apps, err := settled(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if left := containers(ctx, apps); len(left) > 0 {
		errs = append(errs, fmt.Errorf("container processes are left: %v", left))
	}
	f, done, err := rigtest.Open(ctx, cluster)
	if err != nil {
		return err
	}
	defer done() //nolint:errcheck // the process ends
	for _, a := range apps {
		if a.State != "FINISHED" { // ended by YARN, not by its master: a submission a minute later removes the folder
			continue
		}
		dir := path.Join("/user", a.User, ".thalweg", a.ID)
		if _, err := f.Stat(ctx, dir); !errors.Is(err, iofs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s (%s) has left %s: %w", a.ID, a.Name, dir, errors.Join(errors.New("it is there"), err)))
		}
	}
	n, size, err := scanLogs(ctx, f, apps)
	errs = append(errs, err)
	fmt.Fprintf(os.Stderr, "integration: %d applications, %d log files with %d KiB scanned\n", len(apps), n, size>>10)
	return errors.Join(errs...)
}

// settled waits until no application of this run is active and their logs are aggregated.
func settled(ctx context.Context) ([]application, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var busy string
	for {
		apps, err := applications(ctx)
		if err == nil {
			busy = ""
			for _, a := range apps {
				if a.active() || collected(a) && len(localLogs(a)) > 0 || cluster.External && !slices.Contains([]string{"SUCCEEDED", "FAILED", "TIME_OUT"}, a.Aggregation) {
					busy = fmt.Sprintf("%s (%s) is %s, its logs here are %v, their aggregation %s", a.ID, a.Name, a.State, localLogs(a), a.Aggregation)
				}
			}
			if busy == "" {
				return apps, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("not settled: %s: %w", busy, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// collected reports whether YARN collects the logs of an application: in a secured cluster those of the user who runs the daemons alone (rig.Cluster.User).
func collected(a application) bool { return !cluster.Variant.Kerberos || a.User == cluster.User() }

// localLogs are the logs that the NodeManagers still hold: those that are not aggregated yet. The ResourceManager does not know how far that
// is after a restart.
func localLogs(a application) (names []string) {
	for _, dir := range cluster.ContainerLogs() {
		n, err := filepath.Glob(filepath.Join(dir, a.ID, "*", "*"))
		if err == nil {
			names = append(names, n...)
		}
	}
	return names
}

// containers are processes of the applications' containers that are left after a while.
func containers(ctx context.Context, apps []application) (left []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left = nil
		for _, p := range cluster.Containers() {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p))
			if err == nil && slices.ContainsFunc(apps, func(a application) bool {
				return bytes.Contains(env, []byte(strings.TrimPrefix(a.ID, "application")))
			}) {
				cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
				left = append(left, fmt.Sprintf("%d %s", p, bytes.ReplaceAll(cmd, []byte{0}, []byte{' '})))
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return left
		case <-tick.C:
		}
	}
}

// scanLogs looks for forbidden words in the aggregated logs, which YARN keeps uncompressed, and in what was not aggregated.
func scanLogs(ctx context.Context, f fs.FileSystem, apps []application) (files int, size int64, err error) {
	var errs []error
	look := func(where string, b []byte) {
		files++
		size += int64(len(b))
		for _, at := range forbidden.FindAllIndex(b, 3) {
			from, to := max(0, at[0]-200), min(len(b), at[1]+300)
			errs = append(errs, fmt.Errorf("%s holds %q:\n...%s...", where, b[at[0]:at[1]], b[from:to]))
		}
	}
	for _, a := range apps {
		if !collected(a) {
			continue
		}
		seen := files
		if err := walk(ctx, f, path.Join("/app-logs", a.User), a.ID, func(p string) error {
			b, err := fs.ReadFile(ctx, f, p, 256<<20)
			if err == nil {
				look(a.Name+": "+p, b)
			}
			return err
		}); err != nil {
			errs = append(errs, err)
		}
		if files == seen {
			errs = append(errs, fmt.Errorf("%s (%s) has no aggregated logs", a.ID, a.Name))
		}
	}
	return files, size, errors.Join(errs...)
}

// walk calls fn for the files below dir that lie in a folder of that name.
func walk(ctx context.Context, f fs.FileSystem, dir, in string, fn func(p string) error) error {
	infos, err := f.List(ctx, dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	var errs []error
	for _, i := range infos {
		p := i.Path
		switch {
		case i.IsDir:
			errs = append(errs, walk(ctx, f, p, in, fn))
		case strings.Contains(p, "/"+in+"/"):
			errs = append(errs, fn(p))
		}
	}
	return errors.Join(errs...)
}
