package am

import "time"

// The pause between two questions whether the ResourceManager has stored the end doubles from the first to the second.
const (
	firstFinishPoll = 5 * time.Millisecond
	finishPoll      = 100 * time.Millisecond
)

// How often, and with what pause, a heartbeat is sent again on which the ResourceManager failed by its own mistake.
const (
	slips     = 5
	slipPause = time.Second
)
