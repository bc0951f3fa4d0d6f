// Package integration runs Thalweg's binaries against real daemons: a NameNode, a DataNode, a ResourceManager, two NodeManagers and a
// Kafka broker (package test/rig). It is what a user does by hand: thalweg run, list, cancel, stop, with Kafka's and YARN's own command
// line tools as the judges of what came out.
//
//	go test ./test/integration -args -bin ../../bin      after make build; make test-integration does both
//
// Invariants:
//
//  1. Every application has a name that begins with this run's prefix. When all tests have ended, none of them is running or accepted,
//     no container process and no folder of an application is left, and their logs hold no forbidden word and no planted secret.
//  2. A test that needs what not every kind of cluster has says so (rigtest.Needs), and nothing else skips one: make test-matrix runs all of them on each kind.
//  3. A test waits for conditions with a deadline, never for a time.
package integration
