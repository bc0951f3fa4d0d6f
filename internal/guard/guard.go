// Package guard keeps what user code does to its goroutine away from the process: a panic that nobody recovers ends the process, and
// runtime.Goexit (which testing's FailNow calls) ends a goroutine that others may wait for. It is layer L0.
//
// Every goroutine of ours that runs user code runs it by Run or Call.
package guard

import "errors"

// ErrExit is the outcome of a function that ended its goroutine.
var ErrExit = errors.New("the function ended its goroutine (runtime.Goexit, which testing's FailNow and the like call)")

// Run runs fn; a panic is a *PanicError. It does not return when fn ends the goroutine: see Call.
func Run(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked("", r)
		}
	}()
	return fn()
}

// Call runs fn and then, in every case, done with what came of it: fn's error, a *PanicError, or ErrExit. After ErrExit the goroutine ends.
func Call(fn func() error, done func(error)) {
	err := ErrExit
	defer func() {
		if r := recover(); r != nil {
			err = Panicked("", r)
		}
		done(err)
	}()
	err = fn()
}

// Stack is the stack of the panic that err is, "" when it is none.
func Stack(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return p.Stack
	}
	return ""
}
