package kerberos

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// node is a relation or a section of a krb5.conf.
type node struct {
	key   string
	value string
	sub   []*node // of a section
}

// find returns the nodes of a name, in the order of the file.
func (n *node) find(key string) []*node {
	var out []*node
	if n != nil {
		for _, s := range n.sub {
			if s.key == key {
				out = append(out, s)
			}
		}
	}
	return out
}

// value returns the first value of a key, as MIT krb5 does.
func first(sections []*node, key string) string {
	for _, s := range sections {
		for _, n := range s.find(key) {
			if n.sub == nil {
				return n.value
			}
		}
	}
	return ""
}

// maxInclude bounds include and includedir lines within each other.
const maxInclude = 10

type profileReader struct {
	root  *node
	stack []*node // the open section and the braces in it
	depth int
}

// readFile adds a file. Sections of one name stay apart; who asks looks at all of them, in order.
//
// Source: MIT krb5 util/profile/prof_parse.c.
func (r *profileReader) readFile(path string) error {
	if r.depth++; r.depth > maxInclude {
		return fmt.Errorf("%s: more than %d include lines within each other", path, maxInclude)
	}
	defer func() { r.depth-- }()
	f, err := os.Open(path) //nolint:gosec // the user's choice
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	open := r.stack
	r.stack = nil // a file begins outside of sections
	s := bufio.NewScanner(f)
	for line := 1; s.Scan(); line++ {
		if err := r.line(s.Text()); err != nil {
			return fmt.Errorf("%s line %d: %w", path, line, err)
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	if len(r.stack) > 1 {
		return fmt.Errorf("%s: a { is never closed", path)
	}
	r.stack = open
	return nil
}

func (r *profileReader) line(text string) error {
	t := strings.TrimSpace(text)
	switch {
	case t == "" || t[0] == '#' || t[0] == ';':
		return nil
	case strings.HasPrefix(t, "includedir "):
		return r.includeDir(strings.TrimSpace(t[len("includedir "):]))
	case strings.HasPrefix(t, "include "):
		return r.readFile(strings.TrimSpace(t[len("include "):]))
	case strings.HasPrefix(t, "module "):
		return nil
	case t[0] == '[':
		end := strings.IndexByte(t, ']')
		if end < 0 || len(r.stack) > 1 {
			return errors.New("want [section] outside of braces")
		}
		n := &node{key: strings.TrimSpace(t[1:end]), sub: []*node{}}
		r.root.sub = append(r.root.sub, n)
		r.stack = []*node{n}
		return nil
	case len(r.stack) == 0:
		return errors.New("want a [section] first")
	case strings.TrimSuffix(t, "*") == "}":
		if len(r.stack) < 2 {
			return errors.New("} without {")
		}
		r.stack = r.stack[:len(r.stack)-1]
		return nil
	}
	key, value, ok := strings.Cut(t, "=")
	if !ok {
		return errors.New("want key = value")
	}
	n := &node{key: strings.TrimSuffix(strings.TrimSpace(key), "*"), value: unquote(strings.TrimSpace(value))}
	top := r.stack[len(r.stack)-1]
	top.sub = append(top.sub, n)
	if n.value == "{" {
		n.sub = []*node{}
		r.stack = append(r.stack, n)
	}
	return nil
}

// unquote removes quotes, or a comment behind the value, which MIT krb5 would take for a part of it.
func unquote(v string) string {
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`).Replace(v[1 : len(v)-1])
	}
	for _, c := range []string{" #", "\t#", " ;", "\t;"} {
		if i := strings.Index(v, c); i >= 0 {
			v = strings.TrimSpace(v[:i])
		}
	}
	return v
}

// includeDir reads the files of a folder whose names are letters, digits, - and _ only, or end in .conf.
func (r *profileReader) includeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		plain := !strings.ContainsFunc(name, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
		})
		if e.IsDir() || (!plain && (name[0] == '.' || !strings.HasSuffix(name, ".conf"))) {
			continue
		}
		if err := r.readFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// realmNames are the realms that a [realms] section names, each once.
func realmNames(sections []*node) []string {
	var out []string
	for _, s := range sections {
		for _, n := range s.sub {
			if n.sub != nil && !slices.Contains(out, n.key) {
				out = append(out, n.key)
			}
		}
	}
	return out
}
