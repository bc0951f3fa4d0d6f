// Package conf reads Hadoop's XML configuration: core-site.xml, hdfs-site.xml and yarn-site.xml from the directories that
// HADOOP_CONF_DIR and YARN_CONF_DIR name, over built-in defaults for the keys that Thalweg uses. Layer L1; imports nothing
// of ours.
//
// Main flow: Load (or FromMap, for tests), then typed getters (String, Int, Duration, Size) and the derived addresses
// (ResourceManagers, Schedulers, DefaultFS).
//
// Invariants:
//  1. A later file overrides an earlier one, except for properties that the earlier one marked final. A file of a name is read once, from
//     the first directory that holds it, as Java finds it on a class path of $HADOOP_CONF_DIR:$YARN_CONF_DIR.
//  2. ${} is resolved when a value is read, at most 20 steps deep, so that a cycle ends in an error and not in a loop.
//  3. Every error is a *KeyError or names the file: file, key, value, and what to do.
//
// A Configuration is immutable after Load and safe for concurrent use.
//
// Source: hadoop-common Configuration, hadoop-yarn-api YarnConfiguration and HAUtil, Hadoop 3.4.
package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// Files are the names that Load reads in each directory, in order.
var files = []string{"core-site.xml", "hdfs-site.xml", "yarn-site.xml"}

// maxSubstitutions bounds ${} replacements per value. Source: hadoop-common Configuration.MAX_SUBST.
const maxSubstitutions = 20

// ErrNoConfiguration says that no directory of Hadoop's configuration is known.
var ErrNoConfiguration = errors.New("conf: no Hadoop configuration: set HADOOP_CONF_DIR to the folder that holds core-site.xml and yarn-site.xml")

// KeyError is a bad or missing value.
type KeyError struct {
	Key   string
	Value string // as written, before ${} is resolved; empty when unset
	File  string // where the value comes from, empty for a built-in default or an unset key
	Fix   string // what is wrong and what to do
}

// Error names file, key, value and fix.
func (e *KeyError) Error() string {
	where := ""
	if e.File != "" {
		where = " in " + e.File
	}
	if e.Value == "" {
		return fmt.Sprintf("conf: %s is not set%s: %s", e.Key, where, e.Fix)
	}
	return fmt.Sprintf("conf: %s = %q%s: %s", e.Key, e.Value, where, e.Fix)
}

type property struct {
	value string
	file  string // empty for a built-in default
	final bool
}

// Configuration is a set of properties.
type Configuration struct {
	props  map[string]property
	dirs   []string
	getenv func(string) (string, bool)
}

type loader struct {
	dirs      []string
	getenv    func(string) (string, bool)
	overrides map[string]string
}

// Option changes Load.
type Option func(*loader)

// WithDirs reads these directories and not those of the environment.
func WithDirs(dirs ...string) Option { return func(l *loader) { l.dirs = dirs } }

// WithEnvironment replaces os.LookupEnv.
func WithEnvironment(lookup func(string) (string, bool)) Option {
	return func(l *loader) { l.getenv = lookup }
}

// WithOverrides sets properties after all files; they win over final ones too, as the user's last word.
func WithOverrides(m map[string]string) Option { return func(l *loader) { l.overrides = m } }

// Load reads the site files of HADOOP_CONF_DIR, and those that it lacks from YARN_CONF_DIR. A file that is missing is skipped as Hadoop
// does, but a directory that is missing, or directories that hold none of the files, are an error.
//
// Errors: ErrNoConfiguration, and errors that name the variable or the file.
//
// Source: Flink's bin/config.sh, INTERNAL_HADOOP_CLASSPATHS="${HADOOP_CLASSPATH}:${HADOOP_CONF_DIR}:${YARN_CONF_DIR}".
func Load(opts ...Option) (*Configuration, error) {
	l := loader{getenv: os.LookupEnv}
	for _, o := range opts {
		o(&l)
	}
	if l.dirs == nil {
		for _, v := range []string{"HADOOP_CONF_DIR", "YARN_CONF_DIR"} {
			d, _ := l.getenv(v)
			if d == "" || slices.Contains(l.dirs, d) {
				continue
			}
			if info, err := os.Stat(d); err != nil || !info.IsDir() {
				return nil, fmt.Errorf("conf: %s = %s is no folder that can be read: correct it or unset it", v, d)
			}
			l.dirs = append(l.dirs, d)
		}
		if len(l.dirs) == 0 {
			return nil, ErrNoConfiguration
		}
	}
	c := &Configuration{props: defaults(), dirs: l.dirs, getenv: l.getenv}
	read := 0
	for _, f := range files {
		for _, d := range l.dirs {
			if _, err := os.Stat(filepath.Join(d, f)); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := c.readFile(filepath.Join(d, f)); err != nil {
				return nil, err
			}
			read++
			break // what a later directory has is hidden, as on a class path
		}
	}
	if read == 0 {
		return nil, fmt.Errorf("conf: none of %s in %s: check HADOOP_CONF_DIR",
			strings.Join(files, ", "), strings.Join(l.dirs, " or "))
	}
	c.override(l.overrides)
	return c, nil
}

// FromMap is a configuration of built-in defaults and the given properties.
func FromMap(m map[string]string) *Configuration {
	c := &Configuration{props: defaults(), getenv: os.LookupEnv}
	c.override(m)
	return c
}

// WithValues returns a copy with the given properties set.
func (c *Configuration) WithValues(m map[string]string) *Configuration {
	n := &Configuration{props: maps.Clone(c.props), dirs: c.dirs, getenv: c.getenv}
	n.override(m)
	return n
}

func (c *Configuration) override(m map[string]string) {
	for k, v := range m {
		c.props[canonical(k)] = property{value: v, file: "override"}
	}
}

// set applies one property of a file.
func (c *Configuration) set(key string, p property) {
	key = canonical(key)
	if old, ok := c.props[key]; ok && old.final {
		return
	}
	c.props[key] = p
}

// Dirs are the directories that were read.
func (c *Configuration) Dirs() []string { return slices.Clone(c.dirs) }

// Keys are all keys with a value, sorted, built-in defaults included.
func (c *Configuration) Keys() []string { return slices.Sorted(maps.Keys(c.props)) }

// Source is the file that a key's value comes from; empty for a built-in default or an unset key.
func (c *Configuration) Source(key string) string { return c.props[canonical(key)].file }

// Raw returns a value as written.
func (c *Configuration) Raw(key string) (string, bool) {
	p, ok := c.props[canonical(key)]
	return p.value, ok
}

// Lookup returns a value with ${} resolved. A variable that nothing defines stays as it is, as in Hadoop.
//
// Errors: *KeyError when the value refers to itself or nests too deeply.
func (c *Configuration) Lookup(key string) (value string, ok bool, err error) {
	raw, ok := c.Raw(key)
	if !ok {
		return "", false, nil
	}
	v, err := c.substitute(raw)
	if err != nil {
		return "", true, c.keyError(key, err.Error())
	}
	return v, true, nil
}

func (c *Configuration) keyError(key, fix string) error {
	p := c.props[canonical(key)]
	return &KeyError{Key: key, Value: p.value, File: p.file, Fix: fix}
}

var (
	errCycle   = errors.New("the value refers to itself through ${}: break the cycle")
	errTooDeep = fmt.Errorf("more than %d ${} replacements: simplify the value", maxSubstitutions)
)

// substitute replaces innermost ${name} until none is left that has a value.
func (c *Configuration) substitute(v string) (string, error) {
	const maxLength = 1 << 20
	seen := make(map[string]bool)
	from := 0
	for steps := 0; ; {
		start, end := innermost(v, from)
		if start < 0 {
			return v, nil
		}
		name := v[start+2 : end]
		val, ok := c.variable(name)
		if !ok {
			from = end + 1 // leave it as it is and go on behind it
			continue
		}
		if strings.Contains(val, "${"+name+"}") || seen[v] {
			return "", errCycle
		}
		if steps++; steps > maxSubstitutions || len(v)+len(val) > maxLength {
			return "", errTooDeep
		}
		seen[v] = true
		v = v[:start] + val + v[end+1:]
		from = 0
	}
}

// innermost finds the first ${name} at or after from whose name holds no other ${, like Hadoop: the name may not be
// empty and has no white space, $ or braces.
func innermost(v string, from int) (start, end int) {
	for i := from; i < len(v); i++ {
		if v[i] != '}' {
			continue
		}
		s := strings.LastIndex(v[:i], "${")
		if s >= 0 && s+2 < i && !strings.ContainsAny(v[s+2:i], " \t\n$}{") {
			return s, i
		}
	}
	return -1, -1
}

// variable resolves one name: the environment, what Java offers as system properties, other keys.
func (c *Configuration) variable(name string) (string, bool) {
	if env, ok := strings.CutPrefix(name, "env."); ok {
		// ${env.NAME}, ${env.NAME-default} (when unset), ${env.NAME:-default} (when unset or empty)
		if i := strings.IndexByte(env, '-'); i > 0 {
			n, def := env[:i], env[i+1:]
			orEmpty := strings.HasSuffix(n, ":")
			v, ok := c.getenv(strings.TrimSuffix(n, ":"))
			if !ok || (orEmpty && v == "") {
				return def, true
			}
			return v, true
		}
		return c.getenv(env)
	}
	switch name {
	case "user.name":
		if u, err := user.Current(); err == nil {
			return u.Username, true
		}
	case "user.home":
		if h, err := os.UserHomeDir(); err == nil {
			return h, true
		}
	case "java.io.tmpdir":
		return "/tmp", true
	}
	return c.Raw(name)
}
