// Package version holds the product's version and the protocol that client, application master, TaskManager and job binary share.
package version

// Version is the product version; release builds set it with -ldflags "-X .../internal/version.Version=...".
var Version = "0.1.0-dev"

// Protocol is raised when the messages between a job's binary, the TaskManager and the JobMaster change incompatibly. A job binary and
// a cluster with different numbers refuse each other, naming both versions.
const Protocol = 3
