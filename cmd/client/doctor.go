package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/doctor"
	"github.com/thalweg/thalweg/config"
)

// doctorFlags are those of doctor.
type doctorFlags struct {
	transactionFlags
	topics []string
}

func (c *cli) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use: "doctor", Short: "check whether a job could run on the cluster, and say what to do where not", Args: atMost(),
		Long: `Look at what a submission needs, one line each: the programs, Hadoop's configuration and who acts, the file system with its clock and the job's
folders, the ResourceManager, container sizes, queue and nodes; with --bootstrap-server Kafka, too: topics and what this user may do there, and
how long transactions may be. Nothing is submitted, and nothing stays behind. Give the same -D as to run.

ok is good, warn does not keep a job from running, fail does. The exit code is 0 when nothing fails, else 1.`,
		Example: "  thalweg doctor\n" +
			"  thalweg doctor -Dyarn.application.queue=streaming -Dtaskmanager.memory.process.size=4g\n" +
			"  thalweg doctor --bootstrap-server kafka:9092 --topic orders --topic totals\n" +
			"  thalweg doctor -o json | jq 'select(.status == \"fail\")'",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context(), &f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.brokers, "bootstrap-server", "", "Kafka brokers to look at, host:port, comma separated")
	fl.StringVar(&f.properties, "command-config", "", "file of client properties for TLS and SASL, as of Kafka's own tools")
	fl.StringArrayVar(&f.topics, "topic", nil, "a topic that the job reads or writes; repeat it for more")
	fl.DurationVar(&f.limit, "timeout", 30*time.Second, "how long to wait for each part of the cluster")
	return cmd
}

func (c *cli) doctor(ctx context.Context, f *doctorFlags) error {
	if f.limit <= 0 {
		return &usageError{fmt.Errorf("--timeout %s: it must be positive", f.limit)}
	}
	limits := config.Configuration{}
	config.ClientConnectTimeout.Set(limits, f.limit)
	cfg, err := c.config(limits)
	if err != nil {
		return err
	}
	p := doctor.Patient{Config: cfg, LibDir: c.libDir(), Limit: f.limit}
	switch {
	case f.brokers != "" || f.properties != "":
		if p.Kafka.Brokers, p.Kafka.Options, err = f.connection(); err != nil {
			return &usageError{err}
		}
		p.Kafka.Topics = f.topics
	case len(f.topics) > 0:
		return &usageError{fmt.Errorf("--topic %s needs --bootstrap-server, the Kafka brokers", f.topics[0])}
	}
	k, err := c.connect(cfg)
	if err != nil {
		c.finding(doctor.Failure("configuration and login", err))
		return &exitError{exitFailed, errors.New("nothing else can be looked at before this is mended")}
	}
	defer k.close()
	k.wait.close() // each finding says itself what does not answer
	if p.Files, err = k.files(); err != nil {
		return &usageError{err}
	}
	p.Hadoop, p.YARN, p.User = k.hadoop, k.yarn, k.user
	failed, err := doctor.Examine(ctx, p, c.finding)
	if err != nil {
		return err
	}
	if failed > 0 {
		return &exitError{exitFailed, fmt.Errorf("%d checks failed: a job could not run with this configuration", failed)}
	}
	return nil
}

// finding prints one.
func (c *cli) finding(f doctor.Finding) {
	if c.json() {
		_ = c.emit(f) // the error is kept in c.print
		return
	}
	c.printf("%s  %s: %s\n", c.colour(f.Status), f.Check, f.Text)
	if f.Do != "" {
		c.printf("      %s\n", f.Do)
	}
}

// colour is a status in four columns, in colour on a terminal unless NO_COLOR is set.
func (c *cli) colour(s doctor.Status) string {
	text := string(s) + strings.Repeat(" ", 4-len(s))
	if !c.tty || c.getenv("NO_COLOR") != "" {
		return text
	}
	return map[doctor.Status]string{doctor.OK: "\x1b[32m", doctor.Warn: "\x1b[33m", doctor.Fail: "\x1b[31m"}[s] + text + "\x1b[0m"
}
