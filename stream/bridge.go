package stream

import (
	"fmt"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/stream/internal/bridge"
)

func init() {
	bridge.Program = func(name string, build any, conf map[string]string, args []string) (*graph.Program, error) {
		fn, ok := build.(func(*Environment) error)
		if !ok {
			return nil, fmt.Errorf("stream: %T builds no program", build)
		}
		if err := config.Validate(conf, config.Passthrough()...); err != nil {
			return nil, err
		}
		return twice(name, fn, conf, args)
	}
}
