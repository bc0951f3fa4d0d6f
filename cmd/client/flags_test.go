package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each action of Flink's command line with each of its flags is taken, or refused with what stands for it.
//
// Source: Flink 2.x CliFrontendParser; FlinkYarnSessionCli of 1.x.
func TestFlinksActionsAndFlags(t *testing.T) {
	common := "-h --help -D -t --target -e --executor -m --jobmanager -z --zookeeperNamespace"
	for action, flags := range map[string]string{
		"run": `-c --class -C --classpath -j --jarfile -p --parallelism -d --detached -sae --shutdownOnAttachedExit -a --arguments -s --fromSavepoint -n --allowNonRestoredState
			-cm --claimMode -rm --restoreMode -py -pyfs -pym -pyreq -pyarch -pyexec -pyclientexec`,
		"info":           "-p --parallelism -c --class -C -j",
		"list":           "-r --running -s --scheduled -a --all",
		"stop":           "-p --savepointPath -d --drain -type --type -detached --detached",
		"cancel":         "-s --withSavepoint -type --type",
		"savepoint":      "-type --type -detached --detached -d --dispose -j --jarfile",
		"checkpoint":     "--full",
		"session start":  "-q --query -id --applicationId -qu --queue --ship -j --jar -jm --jobManagerMemory -tm --taskManagerMemory -s --slots -d --detached -nm --name -at --applicationType -nl --nodeLabel",
		"session attach": "-id --applicationId",
		"session stop":   "-id --applicationId",
	} {
		for _, flag := range strings.Fields(flags + " " + common) {
			t.Run(action+" "+flag, func(t *testing.T) {
				c := newCLI(&bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
				root := c.root()
				words := rewrite(append(strings.Fields(action), flag))
				cmd, _, err := root.Find(words)
				if err != nil {
					t.Fatal(err)
				}
				cmd.InitDefaultHelpFlag()
				if name := words[len(words)-1]; !taken(cmd, name) {
					unknown := fmt.Errorf("unknown flag: %s", name)
					if !strings.HasPrefix(name, "--") {
						unknown = fmt.Errorf("unknown shorthand flag: '%s' in %s", name[1:2], name)
					}
					if err := flagError(cmd, unknown); !strings.Contains(err.Error(), "there is no such flag: ") {
						t.Errorf("neither taken nor explained: %v", err)
					}
				}
			})
		}
	}
}

// taken reports whether the action has the flag.
func taken(cmd *cobra.Command, name string) bool {
	if long, ok := strings.CutPrefix(name, "--"); ok {
		return cmd.Flag(long) != nil
	}
	short := name[1:2]
	return len(name) == 2 && (cmd.Flags().ShorthandLookup(short) != nil || cmd.InheritedFlags().ShorthandLookup(short) != nil || cmd.PersistentFlags().ShorthandLookup(short) != nil)
}
