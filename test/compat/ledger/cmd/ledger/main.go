// Command ledger is package ledger as a program that writes nowhere: scripts/compat.sh takes its savepoints.
package main

import (
	"github.com/thalweg/thalweg/connector/blackhole"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/test/compat/ledger"
)

func main() {
	stream.Main("ledger", func(env *stream.Environment) error {
		ledger.Build(env, 300, blackhole.Sink[ledger.Line]())
		return nil
	})
}
