// Package config is the one registry of options: typed, with key, default, documentation and check. It is layer L1. Keys are Flink's
// where Flink has the thing. Values travel as strings (config.yaml, -Dkey=value, the job's effective configuration); Get parses them.
package config

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

// Configuration is a set of key-value pairs. The zero value is empty and usable; it is not safe for concurrent writes.
type Configuration map[string]string

// Clone returns an independent copy.
func (c Configuration) Clone() Configuration { return maps.Clone(c) }

// Option is one registered option of type T.
type Option[T any] struct {
	Key     string
	Default T
	Doc     string
	parse   func(string) (T, error)
	format  func(T) string
	check   func(T) error
	values  []string                      // the only ones; nil for any that the check takes
	hint    func(text string, v T) string // how a value that fails its check was understood; "" when that is plain
}

// entry is the untyped view of an Option for the registry.
type entry interface {
	key() string
	doc() string
	defaultText() string
	checkText(string) error
	only() []string
}

var registry = map[string]entry{}

func register[T any](o *Option[T]) *Option[T] {
	if _, dup := registry[o.Key]; dup {
		panic("config: option registered twice: " + o.Key) // a bug of ours, found by any test
	}
	registry[o.Key] = o
	return o
}

func (o *Option[T]) key() string         { return o.Key }
func (o *Option[T]) doc() string         { return o.Doc }
func (o *Option[T]) defaultText() string { return o.format(o.Default) }
func (o *Option[T]) only() []string      { return o.values }
func (o *Option[T]) checkText(s string) error {
	_, err := o.value(s)
	return err
}

func (o *Option[T]) value(s string) (T, error) {
	v, err := o.parse(s)
	if err != nil {
		return o.Default, fmt.Errorf("config: %s = %q: %w", o.Key, s, err)
	}
	if o.check != nil {
		if err := o.check(v); err != nil {
			if o.hint != nil {
				if h := o.hint(s, v); h != "" {
					return o.Default, fmt.Errorf("config: %s = %q: %w (%s)", o.Key, s, err, h)
				}
			}
			return o.Default, fmt.Errorf("config: %s = %q: %w", o.Key, s, err)
		}
	}
	return v, nil
}

// Get returns the option's value in c, or its default. A value that does not parse gives the default and an error that names the key;
// Validate at the entry of a process makes that impossible later, so most callers use Must-free reading after it.
func (o *Option[T]) Get(c Configuration) (T, error) {
	s, ok := c[o.Key]
	if !ok {
		return o.Default, nil
	}
	return o.value(s)
}

// Value is Get for configurations that were validated: the default stands in for what does not parse.
func (o *Option[T]) Value(c Configuration) T {
	v, _ := o.Get(c)
	return v
}

// IsSet reports whether c holds the key.
func (o *Option[T]) IsSet(c Configuration) bool { _, ok := c[o.Key]; return ok }

// Set stores v under the option's key.
func (o *Option[T]) Set(c Configuration, v T) { c[o.Key] = o.format(v) }

// Keys lists all registered keys, sorted.
func Keys() []string {
	return slices.Sorted(maps.Keys(registry))
}

// Values are the only values that the option of that key may have; nil when there is no such option, or it takes more than a few.
func Values(key string) []string {
	if e, ok := registry[key]; ok {
		return slices.Clone(e.only())
	}
	return nil
}

// Validate checks a whole configuration: every key of c by itself, as ValidateKeys does, then by Check what they mean together.
func Validate(c Configuration, passthrough ...string) error {
	if err := ValidateKeys(c, passthrough...); err != nil {
		return err
	}
	return Check(c)
}

// ValidateKeys checks every key of c: unknown ones (with the nearest registered key) and values that do not parse or are out of range, all
// at once. Keys under the given prefixes pass through unchecked (user keys, "flink.hadoop." and the like).
func ValidateKeys(c Configuration, passthrough ...string) error {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var errs problems
	for _, k := range keys {
		if hasPrefix(k, passthrough) {
			continue
		}
		e, ok := registry[k]
		if !ok {
			errs = append(errs, unknownKey(k))
			continue
		}
		if err := e.checkText(c[k]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs.err()
}
