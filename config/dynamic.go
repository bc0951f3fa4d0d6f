package config

import (
	"fmt"
	"strings"
)

// ParseDynamic parses the key=value texts of -D options into a configuration; later ones win. The key is everything up to the first
// equals sign, and must not be empty. "-Dkey" alone means "true", as in Flink.
func ParseDynamic(args []string) (Configuration, error) {
	c := Configuration{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		k = strings.TrimSpace(k)
		if k == "" {
			return nil, fmt.Errorf("config: -D%s: want -Dkey=value", a)
		}
		if !ok {
			v = "true"
		}
		c[k] = strings.TrimSpace(v)
	}
	return c, nil
}

// Merge returns a new configuration in which later ones win.
func Merge(cs ...Configuration) Configuration {
	out := Configuration{}
	for _, c := range cs {
		for k, v := range c {
			out[k] = v
		}
	}
	return out
}

// Passthrough lists the prefixes of keys that Validate leaves alone: the user's own, those handed on to Hadoop's configuration, to the
// environment of the processes, and to connectors, and those of external resources, which ExternalAmounts checks.
func Passthrough() []string {
	return []string{"user.", "pipeline.global-job-parameters.", "flink.hadoop.", "flink.yarn.", "thalweg.hadoop.", "containerized.master.env.", "containerized.taskmanager.env.", "metrics.", "kafka.", externalPrefix}
}
