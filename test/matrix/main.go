// Command matrix runs the suites on each kind of cluster, one after another, and prints what passed where.
//
//	matrix [-on simple,kerberos,...] [-suites integration,...] [-run REGEXP] [-json FILE] [-logs FOLDER]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// options are the flags.
type options struct {
	on, suites, run, seed, json, logs string
}

func main() {
	var o options
	flag.StringVar(&o.on, "on", "", "kinds of clusters, comma separated: simple, kerberos, integrity, privacy, rm-ha, nn-ha, docker, or words of THALWEG_RIG joined by +; all of these when empty")
	flag.StringVar(&o.suites, "suites", "", "integration, faults-hashmap, faults-pebble; all when empty")
	flag.StringVar(&o.run, "run", "", "tests of the integration suite, as go test -run")
	flag.StringVar(&o.seed, "seed", "0", "seed of the fault runs; 0 draws one")
	flag.StringVar(&o.json, "json", "", "file that gets a line of JSON for each suite on each kind, at once")
	flag.StringVar(&o.logs, "logs", "", "folder for the output of each suite (default: a temporary one, which stays)")
	flag.Parse()
	os.Exit(code(o))
}

func code(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o, os.Stdout, os.Stderr)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}

// run prints the table, also of a run that is broken off. It reports whether all is well.
func run(ctx context.Context, o options, out, progress io.Writer) (bool, error) {
	ks, err := kindsOf(o.on)
	if err != nil {
		return false, err
	}
	ss, err := suitesOf(o.suites, o.run, o.seed)
	if err != nil {
		return false, err
	}
	if o.logs == "" {
		o.logs, err = os.MkdirTemp("", "thalweg-matrix-")
	} else {
		err = os.MkdirAll(o.logs, 0o755)
	}
	if err != nil {
		return false, fmt.Errorf("matrix: %w", err)
	}
	m := &matrix{logs: o.logs, progress: progress, lines: io.Discard}
	if o.json != "" {
		f, err := os.Create(o.json)
		if err != nil {
			return false, fmt.Errorf("matrix: %w", err)
		}
		defer func() { _ = f.Close() }() // each line is written at once
		m.lines = f
	}
	for _, k := range ks {
		if err = m.on(ctx, k, ss); err != nil {
			break
		}
	}
	_, _ = fmt.Fprintf(progress, "matrix: the output of the suites is in %s\n", o.logs)
	ok := err == nil && !slices.ContainsFunc(m.results, func(r result) bool { return !r.ok() })
	return ok, errors.Join(err, table(out, m.results))
}

// matrix is what there is so far.
type matrix struct {
	logs     string // folder
	progress io.Writer
	lines    io.Writer
	results  []result
}

// took takes a result over.
func (m *matrix) took(r result) error {
	m.results = append(m.results, r)
	_, _ = fmt.Fprintf(m.progress, "matrix: %s %s: %d passed, %d failed, %d not possible, %s\n", r.Cluster, r.Suite, r.Passed, len(r.Failed), len(r.Impossible), r.took())
	if err := json.NewEncoder(m.lines).Encode(r); err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	return nil
}

// on runs the suites on a cluster of a kind. A cluster that does not come up is a failure of each suite.
func (m *matrix) on(ctx context.Context, k kind, ss []suite) error {
	_, _ = fmt.Fprintf(m.progress, "matrix: %s\n", k.name)
	c, err := up(ctx, k, m.progress)
	for _, s := range ss {
		r := result{Cluster: k.name, Suite: s.name}
		why := s.impossible(k)
		switch {
		case why != "":
			r.Impossible = map[string]string{s.name: why}
		case err != nil:
			r.Failed = map[string]string{"the cluster": err.Error()}
		default:
			if terr := c.test(ctx, s, &r, filepath.Join(m.logs, k.name+"-"+s.name+".log")); terr != nil {
				return errors.Join(terr, m.down(ctx, c))
			}
		}
		if terr := m.took(r); terr != nil {
			return errors.Join(terr, m.down(ctx, c))
		}
	}
	return errors.Join(ctx.Err(), m.down(ctx, c))
}

// down ends a cluster, if there is one.
func (m *matrix) down(ctx context.Context, c *cluster) error {
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	return c.down(ctx)
}

// cluster is one that runs.
type cluster struct {
	env     []string
	command []string // go test, without arguments
	down    func(context.Context) error
}

// up starts a cluster of a kind, with nothing left of another one.
func up(ctx context.Context, k kind, progress io.Writer) (*cluster, error) {
	if k.name == docker {
		const script = "docker/hadoop/cluster.sh"
		sh := func(ctx context.Context, action string) error {
			cmd := exec.CommandContext(ctx, script, action)
			cmd.Stdout, cmd.Stderr = progress, progress
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("matrix: %s %s: %w", script, action, err)
			}
			return nil
		}
		down := func(ctx context.Context) error { return sh(ctx, "down") }
		for _, action := range []string{"build", "up"} {
			if err := sh(ctx, action); err != nil {
				return nil, errors.Join(err, down(context.WithoutCancel(ctx)))
			}
		}
		return &cluster{command: []string{script, "integration"}, down: down}, nil
	}
	c, err := rig.Start(ctx, rig.Options{Variant: k.rig, Progress: progress})
	if err != nil {
		return nil, err
	}
	return &cluster{env: c.Env(), command: []string{"go", "test", "-count=1"}, down: func(ctx context.Context) error {
		return errors.Join(c.Stop(ctx), c.Purge(ctx))
	}}, nil
}

// test runs a suite. What fails is in the result; an error is what keeps the matrix from going on.
func (c *cluster) test(ctx context.Context, s suite, r *result, file string) error {
	log, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	defer func() { _ = log.Close() }()
	args := append(append([]string{}, c.command[1:]...), "-json")
	if c.command[0] == "go" { // the script names the package itself
		args = append(args, s.args...)
	}
	args = append(args, s.flags...)
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("matrix: %w", err)
	}
	rerr := r.read(events, log)
	werr := cmd.Wait()
	r.Seconds = time.Since(begin).Seconds()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if rerr == nil && werr != nil && len(r.Failed) == 0 { // it did not come to its tests, or did not end
		rerr = werr
	}
	if rerr != nil {
		r.Failed[s.name] = fmt.Sprintf("%v (%s)", rerr, file)
	}
	return nil
}
