package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flink's flags and actions that are not here, with what stands for each. Those of one action are named "action -x".
//
// Source: Flink's CliFrontendParser (2.x) and FlinkYarnSessionCli (1.x).
var foreign = map[string]string{
	"-c": noClass, "--class": noClass,
	"-C": noClasspath, "--classpath": noClasspath, "-j": noClasspath, "--jarfile": noClasspath, "--jar": noClasspath,
	"--shutdownOnAttachedExit": "an application lives as long as its job; Ctrl-C in an attached run asks whether to cancel it",
	"-a":                       noArguments, "--arguments": noArguments,
	"-e": "it is -t/--target here", "--executor": "it is -t/--target here",
	"-z": noZooKeeper, "--zookeeperNamespace": noZooKeeper,
	"--python": "a job is a Go program",

	"-yd": "it is -d here", "-yD": "it is -Dkey=value here", "-yh": "see thalweg run --help",
	"-yid": "it is -Dyarn.application.id=... here", "-ynm": "it is -Dyarn.application.name=... here", "-yqu": "it is -Dyarn.application.queue=... here",
	"-yjm": "it is -Djobmanager.memory.process.size=... here", "-ytm": "it is -Dtaskmanager.memory.process.size=... here",
	"-ys": "it is -Dtaskmanager.numberOfTaskSlots=... here", "-ynl": "it is -Dyarn.application.node-label=... here", "-yat": "it is -Dyarn.application.type=... here",
	"-yn": "TaskManagers are started as the parallelism needs them (-p)", "-y": "flags with y are of Flink 1: here they are -t yarn-application and keys of -D (thalweg config yarn)",

	"list -s": noScheduled, "list --scheduled": noScheduled,
	"cancel -s": "thalweg stop -p FOLDER ends a job with a savepoint", "cancel --withSavepoint": "thalweg stop -p FOLDER ends a job with a savepoint",
	"cancel --type": "thalweg stop -p FOLDER --type ... ends a job with a savepoint",
}

const (
	noClass     = "a job is one program, and its main is the entry"
	noClasspath = "a job is one static program with everything in it"
	noArguments = "the program's arguments follow the artifact"
	noZooKeeper = "nothing here uses ZooKeeper: what a failover needs is in HDFS (high-availability.storageDir)"
	noScheduled = "an application that waits is in the list, as ACCEPTED"
)

var (
	unknownShort = regexp.MustCompile(`^unknown shorthand flag: '(.)' in (-[^\s=]+)`)
	unknownLong  = regexp.MustCompile(`^unknown flag: (--[^\s=]+)`)
)

// kinds are what flags of a type want.
var kinds = map[string]string{"int": "a whole number", "int64": "a whole number", "duration": "a duration, such as 10s", "bool": "true or false"}

// flagError is a fault of a flag, with what to do instead of one that only Flink has.
func flagError(cmd *cobra.Command, err error) error {
	var names []string
	if m := unknownShort.FindStringSubmatch(err.Error()); m != nil {
		names = []string{m[2], "-" + m[1]}
	} else if m := unknownLong.FindStringSubmatch(err.Error()); m != nil {
		names = []string{m[1]}
	}
	for _, name := range names {
		for _, key := range []string{cmd.Name() + " " + name, name} {
			if hint, ok := foreign[key]; ok {
				return &usageError{fmt.Errorf("%s %s: there is no such flag: %s", cmd.Name(), name, hint)}
			}
		}
	}
	var v *pflag.InvalidValueError
	if errors.As(err, &v) && kinds[v.GetFlag().Value.Type()] != "" {
		name := "--" + v.GetFlag().Name
		if short := v.GetFlag().Shorthand; short != "" {
			name = "-" + short
		}
		err = fmt.Errorf("%s %s: want %s", name, v.GetValue(), kinds[v.GetFlag().Value.Type()])
	}
	return &usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
}

// foreignActions are Flink's actions that are not here.
func foreignActions() []*cobra.Command {
	var out []*cobra.Command
	for name, hint := range map[string]string{
		"run-application": "thalweg run -t yarn-application ARTIFACT, as in Flink 2",
		"yarn-session":    "it is thalweg session start|attach|list|stop here",
	} {
		out = append(out, &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return &usageError{fmt.Errorf("there is no action %s: %s", name, hint)}
		}})
	}
	return out
}

// Checks of positional arguments.

// artifactFirst asks for an artifact; what follows is the program's.
func artifactFirst(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &usageError{fmt.Errorf("%s: give an artifact: an executable, a .go file or a package folder (see thalweg %s --help)", cmd.Name(), cmd.Name())}
	}
	return nil
}

// atMost takes the first n of the named arguments.
func atMost(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= len(names) {
			return nil
		}
		takes := "no argument"
		if len(names) > 0 {
			takes = "only " + strings.Join(names, " and ")
		}
		return &usageError{fmt.Errorf("%s takes %s, not %q (see %s --help)", cmd.Name(), takes, args[len(names)], cmd.CommandPath())}
	}
}

// misplaced is a hint for a program that did not take its arguments: the flags of run among them, which belong before the artifact. "" for none.
func misplaced(args []string) string {
	for _, a := range args {
		if name, _, _ := strings.Cut(a, "="); takesValue(name) || name == "-d" || name == "--detached" || name == "-n" || name == "--allowNonRestoredState" || strings.HasPrefix(a, "-D") || longForms[name] != "" {
			return fmt.Sprintf("%s stands after the artifact and so belongs to the program; flags of thalweg go before the artifact", name)
		}
	}
	return ""
}
