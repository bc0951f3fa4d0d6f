package rowjob

import (
	"flag"
	"maps"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/config"
)

// Flags are what the commands that run this job have in common.
type Flags struct {
	Only   string // Thalweg or Peer; "" for both
	Keep   bool   // the scratch folder
	Output string // for command.Write
	Ours   config.Configuration
}

// Add adds the flags; ours are settings that -D may change.
func (x *Flags) Add(f *flag.FlagSet, ours config.Configuration) {
	x.Ours = config.Configuration{}
	maps.Copy(x.Ours, ours)
	command.Choice(f, &x.Only, "only", "run one engine only (thalweg or flink)", Thalweg, Peer)
	command.Output(f, &x.Output)
	f.BoolVar(&x.Keep, "keep", false, "keep the scratch folder (logs, checkpoints)")
	f.Func("D", "key=value: a setting of ours", func(s string) error {
		c, err := config.ParseDynamic([]string{s})
		maps.Copy(x.Ours, c)
		return err
	})
}

// Sides are the engines to run, in turn.
func (x *Flags) Sides() []string {
	if x.Only != "" {
		return []string{x.Only}
	}
	return []string{Thalweg, Peer}
}
