// Package configfile reads config.yaml into a config.Configuration. It is layer L1 beside config, apart from it so that users' binaries
// carry no YAML parser: the client reads the file, everybody else gets the effective configuration as JSON.
//
// The file is true YAML. Keys may be dotted, nested, or mixed: "a.b: 1" and "a: {b: 1}" are the same option. Lists become the
// semicolon form. Values keep the text that the user wrote (0x10, 1_000 and "on" are not reinterpreted).
//
// **Source:** Flink 2.x config.yaml.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/thalweg/thalweg/config"
)

// maxDepth bounds nesting, so that a hostile file cannot exhaust the stack.
const maxDepth = 32

// Dir is the folder of config.yaml: dir of THALWEG_CONF_DIR, else conf beside the executable, else ../conf (bin/ and conf/ side by side).
func Dir(getenv func(string) string, executable string) string {
	if d := getenv("THALWEG_CONF_DIR"); d != "" {
		return d
	}
	bin := filepath.Dir(executable)
	if _, err := os.Stat(filepath.Join(bin, "conf", "config.yaml")); err == nil {
		return filepath.Join(bin, "conf")
	}
	return filepath.Join(filepath.Dir(bin), "conf")
}

// Load reads dir/config.yaml. A file that is missing gives an empty configuration.
func Load(dir string) (config.Configuration, error) {
	path := filepath.Join(dir, "config.yaml")
	b, err := os.ReadFile(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return config.Configuration{}, elsewhere(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("config: read %s: %w", path, err)
	}
	c, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("config: %s: %w", path, err)
	}
	return c, nil
}

// Named is Load of the folder that THALWEG_CONF_DIR names, or of Dir where it names none. A folder that is named has to be there.
func Named(getenv func(string) string, executable string) (config.Configuration, error) {
	if d := getenv("THALWEG_CONF_DIR"); d != "" {
		if info, err := os.Stat(d); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("config: THALWEG_CONF_DIR = %s is no folder that can be read: correct it or unset it", d)
		}
	}
	return Load(Dir(getenv, executable))
}

// elsewhere refuses a folder whose options are in a file of another name, which would do nothing.
func elsewhere(dir string) error {
	for _, name := range []string{"flink-conf.yaml", "config.yml", "flink-conf.yml", "thalweg.yaml", "thalweg-conf.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("config: %s holds %s and no config.yaml: options are read from config.yaml only, with the same keys (thalweg config lists them)", dir, name)
		}
	}
	return nil
}

// Parse parses one YAML document. Errors name the line.
func Parse(b []byte) (config.Configuration, error) {
	out := config.Configuration{}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return out, nil // empty, or comments only
		}
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null" {
		return out, nil
	}
	if err := flatten(out, "", doc.Content[0], 0); err != nil {
		return nil, err
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document; keep the first")
	}
	return out, nil
}

func flatten(out config.Configuration, prefix string, n *yaml.Node, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("line %d: nested deeper than %d", n.Line, maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.Kind != yaml.ScalarNode || k.Value == "" {
				return fmt.Errorf("line %d: a key must be a plain word", k.Line)
			}
			if err := flatten(out, join(prefix, k.Value), v, depth+1); err != nil {
				return err
			}
		}
		return nil
	case yaml.SequenceNode:
		if prefix == "" {
			return fmt.Errorf("line %d: want key: value pairs", n.Line)
		}
		parts := make([]string, 0, len(n.Content))
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: %s: a list may hold plain values only", e.Line, prefix)
			}
			parts = append(parts, e.Value)
		}
		return put(out, prefix, strings.Join(parts, ";"), n.Line)
	case yaml.ScalarNode:
		if prefix == "" {
			return fmt.Errorf("line %d: want key: value pairs", n.Line)
		}
		v := n.Value
		if n.Tag == "!!null" {
			v = ""
		}
		return put(out, prefix, v, n.Line)
	default: // aliases: a file of options needs none, and they can blow up
		return fmt.Errorf("line %d: anchors and aliases are not supported", n.Line)
	}
}

func put(out config.Configuration, key, value string, line int) error {
	if _, dup := out[key]; dup {
		return fmt.Errorf("line %d: %s is given twice", line, key)
	}
	out[key] = value
	return nil
}

func join(prefix, k string) string {
	if prefix == "" {
		return k
	}
	return prefix + "." + k
}
