package operator

import "github.com/thalweg/thalweg/internal/guard"

// PanicError is a panic of user code.
type PanicError = guard.PanicError

// Panicked is the error of a panic with this value. It is called by the deferred function that recovered it: the stack is still that of the panic.
func Panicked(op string, value any) *PanicError { return guard.Panicked(op, value) }
