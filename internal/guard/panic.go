package guard

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// PanicError is a panic of user code.
type PanicError struct {
	Operator string // Describe of the operator; "" when what wraps the error tells it
	Value    any
	Where    string // file:line of the user's code that was at work; "" when there was none
	Reading  string // position of the source; "" when it is not known
	Stack    string
	hint     string
}

func (p *PanicError) Error() string {
	s := "panic"
	if p.Operator != "" {
		s += " in operator " + p.Operator
	}
	if s += ": "; p.hint != "" {
		s += p.hint + ": "
	}
	s += fmt.Sprint(p.Value)
	if p.Where != "" {
		s += ", at " + p.Where
	}
	if p.Reading != "" {
		s += " (reading " + p.Reading + ")"
	}
	return s
}

// Unwrap is the error that was the panic's value, if it was one.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Panicked is the error of a panic with this value. It is called by the deferred function that recovered it: the stack is still that of the panic.
func Panicked(op string, value any) *PanicError {
	p := &PanicError{Operator: op, Value: value, Stack: stack()}
	p.Where, p.hint = origin()
	return p
}

// stack is that of the panic, without what recovered it.
func stack() string {
	s := string(debug.Stack())
	head, rest, _ := strings.Cut(s, "\n")
	if _, after, ok := strings.Cut(rest, "\npanic("); ok {
		if i := strings.Index(after, "\n"); i >= 0 {
			if j := strings.Index(after[i+1:], "\n"); j >= 0 { // the line with panic's place
				return head + "\n" + after[i+1+j+1:]
			}
		}
	}
	return s
}

// handles are the types that user code gets from its context, of which a zero value can do nothing.
var handles = map[string]bool{"ValueState": true, "ListState": true, "MapState": true, "ReducingState": true, "AggregatingState": true,
	"BroadcastState": true, "ReadOnlyBroadcastState": true, "TriggerValueState": true, "TriggerReducingState": true}

// origin looks at the stack of a panic: the place of the user's code, and what went wrong there if that is known.
func origin() (where, hint string) {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	panicked, first := false, true
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && strings.HasPrefix(f.Function, ours+"stream/streamtest."): // what called that is a test, not the program
			return "", hint
		case !panicked || strings.HasPrefix(f.Function, "runtime."):
		case userCode(f):
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line), hint
		default:
			if first {
				hint = unopened(f.Function)
			}
			first = false
		}
		if !more {
			return "", hint
		}
	}
}

// unopened tells of a method of a zero state handle.
func unopened(function string) string {
	name, ok := strings.CutPrefix(function, ours+"runtime/operator.")
	typ, _, _ := strings.Cut(strings.TrimPrefix(name, "(*"), "[")
	if !ok || !handles[typ] {
		return ""
	}
	return "the handle of a " + typ + " was not opened in Open"
}

const ours = "github.com/thalweg/thalweg/"

// userCode reports whether a frame is of a program's code: neither Go's, nor this module's but for its tests and examples.
func userCode(f runtime.Frame) bool {
	if rest, ok := strings.CutPrefix(f.Function, ours); ok {
		return strings.HasPrefix(rest, "examples/") || strings.HasPrefix(rest, "test/") || strings.HasSuffix(f.File, "_test.go")
	}
	slash := strings.LastIndexByte(f.Function, '/') + 1
	dot := strings.IndexByte(f.Function[slash:], '.')
	if dot < 0 {
		return false
	}
	pkg := f.Function[:slash+dot]
	if domain, _, _ := strings.Cut(pkg, "/"); pkg == "main" || strings.Contains(domain, ".") {
		return true
	}
	main := mainModule()
	return main != "" && (pkg == main || strings.HasPrefix(pkg, main+"/"))
}

func mainModule() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return b.Main.Path
}
