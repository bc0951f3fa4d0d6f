package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/config"
)

// completing reports whether the command line is a shell's question for completions.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// separate puts a -Dkey that is to be completed into two words: the flag library completes the one as the name of a flag only. Completions have
// to start with what the user has typed, which c.glued keeps.
func (c *cli) separate(args []string) []string {
	last := args[len(args)-1]
	if !strings.HasPrefix(last, "-D") || last == "-D" || artifactAt(args[1:]) < len(args)-1 {
		return args
	}
	c.glued = "-D"
	return append(slices.Clone(args[:len(args)-1]), "-D", last[len("-D"):])
}

// completeKey completes the value of -D: keys, and after the equals sign the values of those that have a few.
func (c *cli) completeKey(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var out []string
	if key, _, ok := strings.Cut(typed, "="); ok {
		for _, v := range config.Values(key) {
			if v = key + "=" + v; strings.HasPrefix(v, typed) {
				out = append(out, c.glued+v)
			}
		}
		if out == nil {
			return nil, cobra.ShellCompDirectiveDefault // a file, perhaps
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	for _, o := range config.All() {
		if strings.HasPrefix(o.Key, typed) {
			out = append(out, c.glued+o.Key+"=\t"+o.Doc)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
