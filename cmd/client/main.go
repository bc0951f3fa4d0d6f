// Command thalweg is the command line: it submits jobs to YARN, runs them here, and looks at and ends those that run. Flags and wiring; the work is
// in am/submit, am/control and staging/artifact. `thalweg help` and `thalweg run --help` teach it.
//
// Exit codes: 0 done; 1 the job failed, or the operation on it did, or its output could not be written; 2 the command line, the artifact or the configuration is wrong; 3 the cluster
// cannot be reached; 130 interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/internal/version"
)

// ending are the signals that end a command in order: what it began and nobody can find is taken back.
var ending = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// outlet is standard output or error. A reader that has gone (| head -1) is as good as a SIGTERM, once.
type outlet struct{ *os.File }

var closedPipe sync.Once

func (o outlet) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		closedPipe.Do(func() { err = errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGTERM)) })
	}
	return n, err
}

// inner is the file behind an outlet, for a process that is to see the terminal.
func inner(w io.Writer) io.Writer {
	if o, ok := w.(outlet); ok {
		return o.File
	}
	return w
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // or the first write to a closed pipe would end the process where it stands
	c := newCLI(outlet{os.Stdout}, outlet{os.Stderr}, os.Getenv)
	code := c.execute(ctx, c.root(), os.Args[1:])
	stop()
	os.Exit(code)
}

// longForms are Flink's flags of several letters after one dash, which the flag library does not know.
var longForms = map[string]string{"-cm": "--claimMode", "-rm": "--claimMode", "-type": "--type", "-detached": "--detached", "--restoreMode": "--claimMode",
	"-sae": "--shutdownOnAttachedExit", "-py": "--python", "-pyfs": "--python", "-pym": "--python", "-pyreq": "--python", "-pyarch": "--python", "-pyexec": "--python", "-pyclientexec": "--python"}

// artifactAt is where the artifact of run, submit or info stands, or "--": what follows belongs to the program. Without one, the number of args.
func artifactAt(args []string) int {
	run, value := false, false // value: the argument belongs to a flag
	for i, a := range args {
		if a == "--" || run && !value && !strings.HasPrefix(a, "-") {
			return i
		}
		if !value && (a == "run" || a == "submit" || a == "info") {
			run = true
		}
		if long := longForms[a]; long != "" && !value {
			a = long
		}
		value = !value && takesValue(a)
	}
	return len(args)
}

// rewrite turns Flink's spellings into ours, up to the artifact.
func rewrite(args []string) []string {
	out := slices.Clone(args)
	value, session := false, false
	for i, a := range args[:artifactAt(args)] {
		name, val, has := strings.Cut(a, "=")
		long, ok := longForms[name]
		if session = session || a == "session" && !value; session && !ok {
			long, ok = sessionForms[name]
		}
		if ok && !value {
			if a = long; has {
				a += "=" + val
			}
			out[i] = a
		}
		value = !value && takesValue(a)
	}
	return out
}

// takesValue reports whether the argument is a flag of run whose value is the next argument.
func takesValue(a string) bool {
	switch a {
	case "-t", "--target", "-p", "--parallelism", "-D", "-s", "--fromSavepoint", "--claimMode", "-o", "--output", "-m", "--jobmanager",
		"--applicationId", "--name", "--queue", "--jobManagerMemory", "--taskManagerMemory", "--applicationType", "--nodeLabel", "--ship":
		return true
	}
	return false
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:          "thalweg",
		Short:        "stateful stream processing in Go on Hadoop YARN",
		Long:         rootHelp,
		SilenceUsage: true, SilenceErrors: true,
		Version: version.Version,
	}
	f := root.PersistentFlags()
	f.StringArrayVarP(&c.dynamic, "define", "D", nil, "set an option: -Dkey=value (repeat it for more)")
	f.StringVarP(&c.output, "output", "o", "text", "form of the output: text or json (one object a line)")
	f.StringVarP(&c.target, "target", "t", "", "where: local, yarn-application or yarn-session")
	f.VarP((*restAddress)(&c.address), "jobmanager", "m", "`host:port` of the REST interface, instead of an application on YARN")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(c.runCommand("run", "submit"), c.infoCommand(), c.listCommand(), c.cancelCommand(), c.stopCommand(), c.savepointCommand(), c.checkpointCommand(), c.rescaleCommand(), c.sessionCommand(), c.stateCommand(), c.historyCommand(), c.kafkaCommand(), c.doctorCommand(), c.configCommand(), c.versionCommand())
	root.AddCommand(foreignActions()...)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := valuesGiven(cmd); err != nil {
			return err
		}
		if c.output != "text" && c.output != "json" {
			return &usageError{fmt.Errorf("-o %s: want text or json", c.output)}
		}
		return nil
	}
	c.complete(root)
	return root
}

// usageError is a fault of the command line or of what it names.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version and the protocol", Long: "Print the version of this program, and of the protocol that the programs of a job must have in common with it.", Args: atMost(), RunE: func(*cobra.Command, []string) error {
		if c.json() {
			return c.emit(map[string]any{"version": version.Version, "protocol": version.Protocol})
		}
		c.printf("thalweg %s (protocol %d)\n", version.Version, version.Protocol)
		return nil
	}}
}

var errInterrupted = errors.New("interrupted")
