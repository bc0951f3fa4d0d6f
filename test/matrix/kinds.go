package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/test/rig"
)

// kind is a kind of cluster.
type kind struct {
	name string
	rig  string // its words (rig.VariantHelp); empty for the one of docker/hadoop
}

const docker = "docker"

// kinds are those of a run without -on.
func kinds() []kind {
	return []kind{
		{"simple", "simple"},
		{"kerberos", "kerberos,authentication"},
		{"integrity", "kerberos,integrity"},
		{"privacy", "kerberos,privacy"},
		{"rm-ha", "rm-ha"},
		{"nn-ha", "nn-ha"},
		{docker, ""},
	}
}

// kindsOf are those of a list of names, or all. A name that is none of a kind is a rig's words, joined by +: kerberos+privacy+rm-ha.
func kindsOf(list string) ([]kind, error) {
	if list == "" {
		return kinds(), nil
	}
	var out []kind
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if i := slices.IndexFunc(kinds(), func(k kind) bool { return k.name == name }); i >= 0 {
			out = append(out, kinds()[i])
			continue
		}
		words := strings.ReplaceAll(name, "+", ",")
		if _, err := rig.ParseVariant(words); err != nil {
			return nil, fmt.Errorf("matrix: -on %s: %w", name, err)
		}
		out = append(out, kind{name, words})
	}
	return out, nil
}

// suite is what runs on each kind.
type suite struct {
	name  string
	args  []string // of go test: the package, after what it is given itself
	flags []string // and the flags that choose among its tests
	// here says that it kills processes of containers, which a cluster in Docker keeps to itself.
	here bool
}

// suites are those of a run without -suites; run and seed are passed on.
func suites(run, seed string) []suite {
	integration := suite{name: "integration", args: []string{"-timeout", "60m", "./test/integration"}}
	if run != "" {
		integration.flags = []string{"-run", run}
	}
	all := []suite{integration}
	for _, backend := range []string{"hashmap", "pebble"} {
		all = append(all, suite{name: "faults-" + backend, here: true, args: []string{"-timeout", "40m", "-run", "^TestFaults$", "./test/faults", "-args",
			"-records", "20000", "-each", "1", "-broker", "1", "-rm", "1", "-backend", backend, "-seed", seed}})
	}
	return all
}

func suitesOf(list, run, seed string) ([]suite, error) {
	all := suites(run, seed)
	if list == "" {
		return all, nil
	}
	var out []suite
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("matrix: -suites %s: there are integration, faults-hashmap and faults-pebble", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// impossible says why a suite cannot run on a kind of cluster; empty when it can.
func (s suite) impossible(k kind) string {
	if k.name == docker && s.here {
		return "it kills processes of containers, and those of a cluster in Docker are out of reach"
	}
	return ""
}
