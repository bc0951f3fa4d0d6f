//go:build !failpoints

package failpoint

// Enabled reports whether this build has failpoints.
const Enabled = false

// At is a point where a process can be killed, stopped or delayed.
func At(string) {}

// Error is a point that can also return an error in place of what follows it.
func Error(string) error { return nil }
