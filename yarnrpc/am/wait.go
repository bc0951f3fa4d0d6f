package am

import "time"

// The pause between two questions whether the ResourceManager has stored the end doubles from the first to the second.
const (
	firstFinishPoll = 5 * time.Millisecond
	finishPoll      = 100 * time.Millisecond
)
