package sasl

import "github.com/thalweg/thalweg/yarnrpc/ipc"

// KeyProtection is the key of Hadoop's configuration that lists the levels.
const KeyProtection = "dfs.data.transfer.protection"

// Level is how a connection is protected, as connections of Hadoop's IPC are.
type Level = ipc.Protection

// The levels, each with all of the one before.
const (
	Authentication = ipc.ProtectAuthentication
	Integrity      = ipc.ProtectIntegrity
	Privacy        = ipc.ProtectPrivacy
)
