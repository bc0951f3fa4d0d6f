package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/staging/artifact"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// runFlags are the flags of run.
type runFlags struct {
	detached    bool
	parallelism int
	savepoint   string
	allowLost   bool
	claim       string
	ship        []string
}

const shipUsage = "send this file or folder along, to every container's folder; repeat it for more (yarn.ship-files)"

// maxParallelism bounds a job's parallelism, as Flink does: there are no more key groups.
const maxParallelism = 1 << 15

func (c *cli) runCommand(name string, aliases ...string) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: name + " [flags] <artifact> [arguments of the program]", Aliases: aliases, Short: "run a job here or on YARN",
		Long: `Run a job. The artifact is a static executable for linux/amd64 that links the SDK, a .go file, or the folder of a main package; the latter two
are built first. Everything after the artifact belongs to the program.

--target local (the default) runs it on an embedded cluster in one process on this machine. --target yarn-application submits an
application to the YARN cluster of HADOOP_CONF_DIR: files that the cluster has already are not sent again. --target yarn-session runs it in your session
that runs (thalweg session start), or in the one of -Dyarn.application.id=. Without -d the command stays, shows how
the job goes, and its exit code tells how it ended; Ctrl-C asks whether to cancel the job or to leave it running.`,
		Example: `  thalweg run ./job --brokers kafka:9092
  thalweg run -t yarn-application -d -p 4 ./job --brokers kafka:9092
  thalweg run -t yarn-application -Dyarn.application.queue=streaming -Dexecution.checkpointing.interval=10s ./cmd/job
  thalweg run -t yarn-application -s hdfs:///savepoints/savepoint-1 -p 8 ./job
  thalweg run -t yarn-session -d -p 4 ./job --brokers kafka:9092
  thalweg run -t yarn-application -d -o json ./job | jq .applicationId`,
		Args: artifactFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("fromSavepoint") && f.savepoint == "" {
				return &usageError{errors.New("--fromSavepoint is empty: give the savepoint, or leave the flag out to start without state")}
			}
			if cmd.Flags().Changed("parallelism") && f.parallelism == 0 {
				return &usageError{errors.New("-p 0: want 1 at least")}
			}
			return c.run(cmd.Context(), f, args[0], args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	fl := cmd.Flags()
	fl.BoolVarP(&f.detached, "detached", "d", false, "return after the submission")
	fl.IntVarP(&f.parallelism, "parallelism", "p", 0, "parallelism of operators that set none (parallelism.default)")
	fl.StringVarP(&f.savepoint, "fromSavepoint", "s", "", "start from this savepoint or retained checkpoint")
	fl.BoolVarP(&f.allowLost, "allowNonRestoredState", "n", false, "start although the savepoint holds state that no operator claims")
	fl.StringVar(&f.claim, "claimMode", "", "who owns the savepoint's files afterwards: claim or no_claim (also -cm)")
	fl.StringArrayVar(&f.ship, "ship", nil, shipUsage)
	return cmd
}

// valuesGiven refuses a flag with a value that looks like a flag: its own was forgotten, and it swallowed the next argument.
func valuesGiven(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if s, ok := f.Value.(pflag.SliceValue); ok {
			values = s.GetSlice()
		} else if f.Value.Type() != "string" {
			return // checked by its own kind
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + "/" + name
		}
		for _, v := range values {
			if strings.HasPrefix(v, "-") && err == nil {
				err = &usageError{fmt.Errorf("%s has no value: what follows is %s (see %s --help)", name, v, cmd.CommandPath())}
			}
		}
	})
	return err
}

// configuration turns flags into options.
func (f runFlags) configuration() (config.Configuration, error) {
	out := config.Configuration{}
	if f.parallelism != 0 {
		if f.parallelism < 1 || f.parallelism > maxParallelism {
			return nil, &usageError{fmt.Errorf("-p %d: want 1 at least, %d at most", f.parallelism, maxParallelism)}
		}
		out[config.Parallelism.Key] = strconv.Itoa(f.parallelism)
	}
	if f.savepoint != "" {
		out[config.SavepointPath.Key] = f.savepoint
	}
	if f.allowLost {
		out[config.AllowNonRestored.Key] = "true"
	}
	if len(f.ship) > 0 {
		config.YarnShipFiles.Set(out, f.ship)
	}
	if f.claim != "" {
		out[config.ClaimMode.Key] = strings.ToLower(f.claim)
	}
	return out, nil
}

func (c *cli) run(ctx context.Context, f runFlags, name string, args []string) error {
	start := time.Now()
	flags, err := f.configuration()
	if err != nil {
		return err
	}
	cfg, err := c.config(flags)
	if err != nil {
		return err
	}
	if p, most := config.Parallelism.Value(cfg), config.MaxParallelism.Value(cfg); most > 0 && p > most {
		return &usageError{fmt.Errorf("%s = %d is above %s = %d", config.Parallelism.Key, p, config.MaxParallelism.Key, most)}
	}
	target := c.target
	if target == "" {
		target = config.Target.Value(cfg)
	}
	switch target {
	case "local", "yarn-application":
	case "yarn-session":
		if err := c.checkSessionKeys(); err != nil {
			return err
		}
		if len(f.ship) > 0 {
			return &usageError{fmt.Errorf("--ship: %s", config.SessionKeys([]string{config.YarnShipFiles.Key}))}
		}
	default:
		return &usageError{fmt.Errorf("-t %s: want local, yarn-application or yarn-session", target)}
	}
	if target == "local" && f.detached {
		return &usageError{errors.New("-d: a job that runs on this machine ends with this command: use -t yarn-application, or the shell's & to go on")}
	}
	if target == "local" && len(f.ship) > 0 {
		return &usageError{errors.New("--ship: a job that runs on this machine runs in this folder, and nothing is sent: leave it out")}
	}
	building := false
	path, err := artifact.Resolve(ctx, name, artifact.Options{OnBuild: func(command string) { building = true; c.notef("building: %s", command) }})
	if err != nil {
		return err
	}
	built := int64(0)
	if building { // the submission's time is its own
		built = time.Since(start).Milliseconds()
		c.notef("built in %s", round(time.Since(start)))
		start = time.Now()
	}
	if target == "local" {
		return c.runLocal(ctx, cfg, path, args)
	}
	if err := artifact.CheckStatic(path); err != nil {
		return err
	}
	if target == "yarn-session" {
		return c.runInSession(ctx, f, cfg, path, args, start, built)
	}
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	files, err := k.files()
	if err != nil {
		return &usageError{err}
	}
	show := &progress{c: c, start: start}
	res, err := submit.Submit(ctx, submit.Request{
		YARN: k.yarn, FS: files, Hadoop: k.hadoop, Config: k.application(c, cfg), User: k.user, Artifact: path, Args: args, LibDir: c.libDir(),
		OnPhase: show.phase, Progress: show.upload, Tokens: k.tokens, KerberosConf: k.kerberosConf,
	})
	show.done()
	if err != nil {
		return err
	}
	k.submittedFor(c)
	web := k.proxy(res.ID.String())
	if c.json() {
		if err := c.emit(map[string]any{
			"event": "submitted", "applicationId": res.ID.String(), "jobId": res.JobID, "name": res.Name, "webUrl": web, "sentBytes": res.Sent,
			"stagingDirectory": res.Staging, "phases": res.Phases, "ms": time.Since(start).Milliseconds(), "buildMs": built,
		}); err != nil {
			return err
		}
	} else {
		c.printf("Application  %s (%s)\nJob          %s\nWeb          %s\nSubmitted in %s, %s sent\n", res.ID, res.Name, res.JobID, web, round(time.Since(start)), bytesText(res.Sent))
		if f.detached {
			c.printf("How it goes, and why it failed if it did: thalweg list -Dyarn.application.id=%s\nStop it with a savepoint: thalweg stop -Dyarn.application.id=%s\nCancel it:                thalweg cancel -Dyarn.application.id=%s\n", res.ID, res.ID, res.ID)
		}
	}
	if f.detached {
		return nil
	}
	return (&follower{c: c, k: k, app: res.ID, job: res.JobID, start: start}).follow(ctx)
}

// tokens are those that an application starts with: the ResourceManager renews them for as long as they may be.
func (k *cluster) tokens(ctx context.Context, uris ...string) (*token.Credentials, error) {
	if !k.who.Secure() {
		return &token.Credentials{}, nil
	}
	renewer, err := login.Renewer(k.hadoop)
	if err != nil {
		return nil, err
	}
	creds, _, err := k.who.Obtain(ctx, k.config, k.hadoop, renewer, uris...)
	if err != nil || !k.who.HasLogin() || !config.TokensEnabled.Value(k.config) {
		return creds, err
	}
	rm, err := k.yarn.DelegationToken(ctx, renewer)
	if err == nil && len(rm.Identifier) > 0 {
		creds.Put(rm.Service, rm)
	}
	return creds, err
}

// standsIn reports whether who logged in by a keytab acts for another user.
func (k *cluster) standsIn(c *cli) bool {
	return k.who.Secure() && c.getenv(login.EnvProxy) != "" && config.KerberosKeytab.Value(k.config) != ""
}

// application is the configuration of what is submitted. Who acts for another user keeps the keytab: it is not that user's.
func (k *cluster) application(c *cli, cfg config.Configuration) config.Configuration {
	if !k.standsIn(c) {
		return cfg
	}
	cfg = cfg.Clone()
	delete(cfg, config.KerberosKeytab.Key)
	delete(cfg, config.KerberosPrincipal.Key)
	return cfg
}

// submittedFor tells how long what was submitted for another user lives.
func (k *cluster) submittedFor(c *cli) {
	if k.standsIn(c) {
		c.notef("warning: this is submitted for %s (%s): the keytab of %s is not sent along, and the application ends when its tokens can be renewed no further (after 7 days by Hadoop's defaults)",
			k.user, login.EnvProxy, config.KerberosPrincipal.Value(k.config))
	}
}

// proxy is the address of the application's pages behind the ResourceManager.
func (k *cluster) proxy(id string) string {
	addrs, https, err := k.hadoop.WebAddresses()
	if err != nil || len(addrs) == 0 {
		return ""
	}
	scheme := "http"
	if https {
		scheme = "https"
	}
	return scheme + "://" + addrs[0] + "/proxy/" + id + "/"
}
