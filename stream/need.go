package stream

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/operator"
)

// errNoEnvironment is the mistake of a stream that has no Environment to tell it to; program recovers it.
type errNoEnvironment struct{ error }

func noEnvironment() {
	site, _ := caller()
	panic(errNoEnvironment{fmt.Errorf("%s: the stream was not made by an Environment: it is a zero value", site)})
}

// need notes a mistake when what the user's call needs is missing. It is not generic, and gets a bool instead of the function, so that it adds
// next to nothing to programs.
func (e *Environment) need(ok bool, what string) {
	if e == nil {
		noEnvironment()
	}
	if !ok {
		_, method := caller()
		e.mistake("%s: %s is nil", method, what)
	}
}

// constructor is need for a function that makes the instances of the subtasks: ok says that it is there and made one.
func (e *Environment) constructor(ok bool) {
	e.need(ok, "the function that makes the instances, or what it returns,")
}

// made reports whether a constructor made something, and notes the mistake of one that made the same thing twice.
func (e *Environment) made(first, second any) bool {
	if sameInstance(first, second) && e != nil {
		_, method := caller()
		e.mistake("%s: %s: each subtask needs its own", method, oneInstance)
	}
	return !operator.IsNil(first)
}

// oneInstance is what is wrong when sameInstance holds.
const oneInstance = "the constructor returns the same instance each time"

// sameInstance reports whether both are one pointer. What has no size holds nothing, and may share its address.
func sameInstance(a, b any) bool {
	if operator.IsNil(a) || operator.IsNil(b) {
		return false
	}
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	return v.Kind() == reflect.Pointer && v.Type() == w.Type() && v.Pointer() == w.Pointer() && v.Type().Elem().Size() > 0
}

// aggregator is need for an aggregator, whichever it is.
func (e *Environment) aggregator(agg any) {
	if e.need(!operator.IsNil(agg), "the aggregator"); operator.IsNil(agg) {
		return
	}
	if a, ok := agg.(interface{ missing() bool }); ok {
		e.need(!a.missing(), "the aggregator's function")
	}
}

// with notes a mistake when a stream of o cannot be put together with one of e.
func (e *Environment) with(o *Environment, what string) bool {
	if e == nil || o == nil {
		noEnvironment()
	}
	if e != o {
		for _, e := range []*Environment{e, o} { // one of them may be of no interest to anybody
			e.mistake("%s of streams of different environments", what)
		}
	}
	return e == o
}

// validate notes the faults that a source or sink finds in itself, each with its place.
func (e *Environment) validate(what string, c any) {
	v, ok := c.(connector.Validator)
	if !ok {
		return
	}
	err := v.Validate()
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			e.mistake("%s: %v", what, err)
		}
	} else if err != nil {
		e.mistake("%s: %v", what, err)
	}
}

// own notes what a sink owns, and that another one owns it, too.
func (e *Environment) own(sink any) {
	o, ok := sink.(connector.Owner)
	if !ok {
		return
	}
	for _, what := range o.Owns() {
		if at := e.owned[what]; at != "" {
			e.mistake("sink: %s is that of the sink at %s, too: give each its own", what, at)
			continue
		}
		if e.owned == nil {
			e.owned = map[string]string{}
		}
		e.owned[what] = callSite()
	}
}

// strategy notes the mistakes of a watermark strategy.
func (e *Environment) strategy(prefix, text string, errs []error) {
	if text == "" || text[0] == ' ' { // a setting of the zero value
		errs = append(errs[:len(errs):len(errs)], errors.New("the watermark strategy is a zero value: take BoundedOutOfOrderness, MonotonousTimestamps, ForGenerator or NoWatermarks"))
	}
	for _, err := range errs {
		e.mistake("%s%v", prefix, err)
	}
}

// inside notes a mistake when field, called with record, a pointer to a zero value, returns a pointer to something else. Nothing can be told of
// one that panics, that returns nil (it may follow a pointer of the record), or that changes the record.
func (e *Environment) inside(record any, field func() any) {
	var p reflect.Value
	func() {
		defer func() { _ = recover() }() // the field is behind a pointer, or in a slice, of the record
		p = reflect.ValueOf(field())
	}()
	r := reflect.ValueOf(record)
	if !p.IsValid() || p.IsNil() || !r.Elem().IsZero() {
		return
	}
	if at := p.Pointer(); at < r.Pointer() || at >= r.Pointer()+r.Type().Elem().Size() {
		_, method := caller()
		e.mistake("%s: the field function returns a pointer to what is no part of the record: return the address of one of its fields", method)
	}
}

// unfinished is what the user's program began.
type unfinished struct {
	site, what string
	given      bool
}

// wants notes that a stream at the user's call is nothing without a function, and returns where it is said that it has one.
func (e *Environment) wants(what string) *bool {
	if e == nil {
		noEnvironment()
	}
	u := &unfinished{site: callSite(), what: what}
	e.begun = append(e.begun, u)
	return &u.given
}

// finish notes that what was begun has a function.
func (e *Environment) finish(given *bool) {
	if e == nil {
		noEnvironment()
	}
	if given != nil {
		*given = true
	}
}

// forgotten are warnings of what the program began and never gave a function. Flink says nothing of it.
func (e *Environment) forgotten() (warnings []string) {
	for _, u := range e.begun {
		if !u.given {
			warnings = append(warnings, fmt.Sprintf("%s: the %s are given no function, so nothing comes of them: add Reduce, Aggregate, Process or Apply", u.site, u.what))
		}
	}
	return warnings
}

// nameOf is the name that the user knows a trigger by, and what it can do to merge.
func nameOf(trigger any) string {
	if p, ok := trigger.(interface{ Inner() any }); ok {
		trigger = p.Inner()
	}
	name := fmt.Sprintf("%T", trigger)
	name, _, _ = strings.Cut(name, "[")
	if ours, found := strings.CutPrefix(strings.TrimPrefix(name, "*"), "operator."); found {
		return strings.ToUpper(ours[:1]) + ours[1:] + "; take another one"
	}
	return name + "; let its CanMerge return true, and its OnMerge merge what it keeps (MergeState) and set its timers"
}
