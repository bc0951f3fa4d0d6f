package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/thalweg/thalweg/config"
)

const rootHelp = `thalweg submits streaming jobs to YARN, runs them on this machine, and looks after those that run. Actions, flags and keys have Flink's names.

A job is an ordinary Go program that calls stream.Main. Write one, then

  thalweg run ./job                                 here, on an embedded cluster
  thalweg run -t yarn-application -d ./job          on the cluster of HADOOP_CONF_DIR
  thalweg doctor                                    whether one could run there
  thalweg session start -d                          an application that takes many jobs
  thalweg run -t yarn-session -d ./job              one of them
  thalweg list                                      what runs
  thalweg history list                              what has ended
  thalweg savepoint -Dyarn.application.name=job hdfs:///savepoints
  thalweg stop -Dyarn.application.name=job -p hdfs:///savepoints
                                                    end it with a savepoint
  thalweg run -t yarn-application -s PATH ./job     go on from there

Options. A key has, in rising order: its default, what the program itself sets (env.EnableCheckpointing, env.SetParallelism), config.yaml,
-Dkey=value, and the flag for it (-p, -s). config.yaml is in $THALWEG_CONF_DIR, else in conf/ beside this program or one folder above.
"thalweg config" lists the keys. A key that does not exist is an error.

Environment:
  HADOOP_CONF_DIR       folder of core-site.xml, hdfs-site.xml and yarn-site.xml; a file that it lacks is taken from YARN_CONF_DIR
  HADOOP_USER_NAME      who acts, on a cluster without Kerberos; default the user of this system
  THALWEG_CONF_DIR      folder of config.yaml
  THALWEG_LIB_DIR       folder of thalweg-appmaster and thalweg-taskmanager; default that of this program
  THALWEG_LOG_LEVEL     log of a job that runs here: trace, debug, info, warn (the default) or error

Results are written to the standard output, progress and errors to the standard error; with -o json each line of the output is an object.

Exit codes:
  0    done
  1    the job, or the operation on it, failed, or the output could not be written
  2    the command line, the artifact or the configuration is wrong
  3    the cluster cannot be reached
  130  interrupted
A job that runs here hands on its own.`

// inapplicable are the global flags that an action does not use: its help does not show them.
var inapplicable = map[string][]string{
	"run": {"jobmanager"}, "info": {"jobmanager", "target"}, "version": {"jobmanager", "target", "define"}, "config": {"jobmanager", "target", "define"},
	"completion": {"jobmanager", "target", "define", "output"}, "help": {"jobmanager", "target", "define", "output"},
	"session": {"jobmanager", "target"}, "state": {"target", "jobmanager"}, "history": {"target", "jobmanager"},
	"kafka-transactions": {"target", "jobmanager"}, "doctor": {"target", "jobmanager"},
}

// complete adds what all actions share: help that shows only what applies, checks of the global flags, completion of their values.
func (c *cli) complete(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for p := cmd; p != nil; p = p.Parent() {
			for _, name := range inapplicable[p.Name()] {
				if p.Parent() == root {
					hide(cmd.InheritedFlags(), name)
				}
			}
		}
		show(cmd, args)
		if cmd != root {
			c.printf("\nWhere options come from, the environment and the exit codes: thalweg help\n")
		}
	})
	root.SetHelpCommand(&cobra.Command{
		Use: "help [action]", Short: "the help of an action", Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return &usageError{fmt.Errorf("help: there is no action %q (thalweg help lists them)", strings.Join(args, " "))}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	})
	for _, cmd := range root.Commands() {
		run := cmd.RunE
		if run == nil {
			continue
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := c.applies(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	fixed := func(values ...string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values, cobra.ShellCompDirectiveNoFileComp
		}
	}
	for name, fn := range map[string]cobra.CompletionFunc{
		"target": fixed("local", "yarn-application", "yarn-session"), "output": fixed("text", "json"),
		"define": c.completeKey,
	} {
		_ = root.RegisterFlagCompletionFunc(name, fn) // the flags exist
	}
}

func hide(flags *pflag.FlagSet, name string) {
	if f := flags.Lookup(name); f != nil {
		f.Hidden = true
	}
}

// applies refuses a target or an address that the action cannot use: it would silently go elsewhere.
func (c *cli) applies(cmd *cobra.Command) error {
	switch name := cmd.Name(); name {
	case "run", "info":
		if c.address != "" {
			return &usageError{fmt.Errorf("%s: -m %s: a job is not sent to a REST interface; thalweg run takes -t local, -t yarn-application or -t yarn-session", name, c.address)}
		}
	case "list", "cancel", "stop", "savepoint", "checkpoint":
		switch c.target {
		case "", "yarn-application", "yarn-session":
		case "local":
			return &usageError{fmt.Errorf("%s: -t local: a job that runs on this machine is reached by -m localhost:%d (rest.port)", name, config.RestPort.Default)}
		default:
			return &usageError{fmt.Errorf("%s: -t %s: want yarn-application or yarn-session", name, c.target)}
		}
	}
	return nil
}

func (c *cli) configCommand() *cobra.Command {
	return &cobra.Command{
		Use: "config [part of a key]", Short: "list the options with their defaults and meaning", Args: atMost("a part of a key"),
		Long: "List the options whose key contains the argument, or all: key, default and meaning. Set one by -Dkey=value, or in config.yaml. The\n" +
			"values that were set for a running job are at its REST path jobs/ID/config. With -o json: one object {key, default, doc} a line.",
		Example: "  thalweg config\n  thalweg config checkpointing\n  thalweg config -o json yarn. | jq -r .key",
		RunE: func(_ *cobra.Command, args []string) error {
			part := ""
			if len(args) > 0 {
				part = strings.ToLower(args[0])
			}
			found := false
			for _, o := range config.All() {
				if !strings.Contains(strings.ToLower(o.Key), part) {
					continue
				}
				found = true
				if c.json() {
					if err := c.emit(o); err != nil {
						return err
					}
					continue
				}
				def := o.Default
				if def == "" {
					def = "none"
				}
				c.printf("%s (%s)\n    %s\n", o.Key, def, o.Doc)
			}
			if found {
				if absent := config.Absent(part); len(absent) > 0 && !c.json() {
					c.printf("\nOf Flink's options these are not here:\n    %s\n", strings.Join(absent, "\n    "))
				}
				return nil
			}
			if about := config.About(part); about != "" {
				return &usageError{fmt.Errorf("config: no option has %q in its key: %s", args[0], about)}
			}
			hint := ""
			if k := nearestKey(part); k != "" {
				hint = fmt.Sprintf("; did you mean %q?", k)
			}
			return &usageError{fmt.Errorf("config: no option has %q in its key%s (thalweg config lists all)", args[0], hint)}
		},
	}
}

// nearestKey is the registered key that a misspelt key, or part of one, is most like; "" when it is like none.
func nearestKey(part string) string {
	segments := strings.Count(part, ".") + 1
	best, least := "", len(part)/3+1
	for _, key := range config.Keys() {
		parts := strings.Split(key, ".")
		for i := 0; i+segments <= len(parts); i++ {
			if d := distance(part, strings.ToLower(strings.Join(parts[i:i+segments], "."))); d < least {
				best, least = key, d
			}
		}
	}
	return best
}

// distance is how many letters must be put in, left out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
