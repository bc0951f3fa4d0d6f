package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/staging/artifact"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// localGrace is what the program gets to end in order after a signal.
const localGrace = 15 * time.Second

// programRefuses is the exit code of a program that does not build its graph, and of Go's flag package.
const programRefuses = 2

// runLocal runs the program as a child, with its output as ours. Its exit code is ours.
func (c *cli) runLocal(ctx context.Context, cfg config.Configuration, path string, args []string) error {
	dir, err := process.Folder("", "thalweg-run-")
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	file := filepath.Join(dir, "config.json")
	b, err := json.Marshal(cfg)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if config.Externalized.IsSet(cfg) && config.Externalized.Value(cfg) == "retain_on_cancellation" && config.CheckpointDir.Value(cfg) == "" {
		c.notef("warning: checkpoints of a job that runs here go to a temporary folder, which is removed at its end: keep them with -D%s=file:///...", config.CheckpointDir.Key)
	}
	cmd := exec.CommandContext(ctx, abs, args...) //nolint:gosec // the user's program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, inner(c.out), inner(c.err)
	cmd.Env = append(os.Environ(), rpc.EnvConfig+"="+file, "THALWEG_LOG_LEVEL="+localLevel(c.getenv, cfg))
	tokens, end, err := c.localTokens(ctx, cfg, dir)
	if err != nil {
		return err
	}
	defer end()
	cmd.Env = append(cmd.Env, tokens...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // Ctrl-C reaches the whole group already; SIGTERM to us must be passed on
	cmd.WaitDelay = localGrace
	// A program that outlives us when we are killed would go on beside the one that is started again from its checkpoint. The kernel looks at
	// the thread that started it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, errInterrupted}
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		if hint := misplaced(args); exit.ExitCode() == programRefuses && hint != "" {
			c.notef("thalweg: %s", hint)
		}
		return &exitError{code: exit.ExitCode()} // the program said why
	}
	return &exitError{exitFailed, fmt.Errorf("run %s: %w", path, err)}
}

// localLogin is how long a login and the first tokens may take: most programs that run here need none.
const localLogin = 10 * time.Second

// localTokens gives a program that runs here what it would have on YARN of a secured cluster: tokens of the file systems, in a file that is replaced
// before they end. The program has no login of its own. Without a keytab in the configuration a login that fails is told, and the program
// runs: it may need no file of the cluster. env is what it has to find the file, end ends the renewal.
func (c *cli) localTokens(ctx context.Context, cfg config.Configuration, dir string) (env []string, end func(), err error) {
	end = func() {}
	if c.getenv("HADOOP_CONF_DIR") == "" || c.getenv(token.EnvFile) != "" || !config.TokensEnabled.Value(cfg) {
		return nil, end, nil
	}
	fails := func(err error) ([]string, func(), error) {
		if config.KerberosKeytab.Value(cfg) != "" {
			return nil, end, &usageError{err}
		}
		c.notef("warning: no files of the cluster that HADOOP_CONF_DIR describes can be reached: %s", oneLine(err.Error()))
		return nil, end, nil
	}
	hadoop, err := conf.Load()
	if err != nil {
		return nil, end, &usageError{err}
	}
	hadoop = hadoop.WithValues(container.Overrides(cfg))
	secure, err := hadoop.Kerberos()
	if err != nil || !secure {
		return nil, end, err
	}
	soon, cancel := context.WithTimeout(ctx, localLogin)
	defer cancel()
	who, err := login.Client(soon, cfg, hadoop, c.getenv, zerolog.Nop())
	if err != nil {
		return fails(err)
	}
	file, err := container.NewTokenFile(dir, &token.Credentials{})
	if err != nil {
		_ = who.Close()
		return nil, end, err
	}
	keeper := login.NewKeeper(cfg, func(ctx context.Context) (*token.Credentials, time.Time, error) {
		return who.Obtain(ctx, cfg, hadoop, "", config.CheckpointDir.Value(cfg), config.SavepointDir.Value(cfg))
	}, file.Write, zerolog.Nop())
	next, err := keeper.Once(soon)
	if err != nil {
		_ = who.Close()
		return fails(err)
	}
	life, over := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { keeper.Keep(life, next) })
	return []string{file.Environment()}, func() { over(); wg.Wait(); _ = who.Close() }, nil
}

// localLevel is the level of the embedded cluster's log: quiet unless the user wants it.
func localLevel(getenv func(string) string, cfg config.Configuration) string {
	if l := getenv("THALWEG_LOG_LEVEL"); l != "" {
		return l
	}
	if config.LogLevel.IsSet(cfg) {
		return config.LogLevel.Value(cfg)
	}
	return "warn"
}

func (c *cli) infoCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "info [flags] <artifact> [arguments of the program]", Short: "print the plan of a program, without running it",
		Long: "Run the program in role plan on this machine: it builds its graph twice, the two are compared, and the plan is printed: its tasks, where\n" +
			"each one's records come from, and the operators in each. With -o json in the form of Flink's plans, one node per operator.",
		Example: "  thalweg info -p 4 ./job --brokers kafka:9092\n  thalweg info -o json ./job | jq -r '.nodes[].type'",
		Args:    artifactFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags, err := f.configuration()
			if err != nil {
				return err
			}
			cfg, err := c.config(flags)
			if err != nil {
				return err
			}
			path, err := artifact.Resolve(cmd.Context(), args[0], artifact.Options{OnBuild: func(command string) { c.notef("building: %s", command) }})
			if err != nil {
				return err
			}
			if path, err = filepath.Abs(path); err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "thalweg-info-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
			g, err := am.Plan(cmd.Context(), am.PlanRequest{Path: path, Name: args[0], Dir: dir, Config: rpc.ProcessConfig{JobID: graph.NewID().String(), Config: cfg, Args: args[1:]}, Stderr: c.err})
			var plan *am.PlanError
			if errors.As(err, &plan) && plan.Help != "" {
				c.notef("%s", plan.Help)
				return nil
			}
			if err != nil {
				if hint := misplaced(args[1:]); hint != "" {
					err = fmt.Errorf("%w (%s)", err, hint)
				}
				return &usageError{err}
			}
			for _, w := range g.Warnings {
				c.notef("warning: %s", w)
			}
			if c.json() {
				return c.emit(g.Plan())
			}
			c.printf("%s", g.Tree())
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().IntVarP(&f.parallelism, "parallelism", "p", 0, "parallelism of operators that set none")
	return cmd
}
