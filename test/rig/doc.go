// Package rig starts real Hadoop and Kafka daemons on this machine, as plain Java processes from their public Maven artifacts: a
// NameNode, a DataNode, a ResourceManager, two NodeManagers and a Kafka broker (KRaft, broker and controller in one), or a secured
// cluster with a KDC, or pairs of masters with failover (Variant; docs/test-clusters.md). It is what
// integration and fault tests, benchmarks and `make cluster-up` run against. It is test support: nothing in the product imports it,
// and it imports nothing of the product, so that it stays an independent check.
//
// Main flow of Start: find a JDK, let Maven copy the jars (once per pinned version), pick a block of free ports, write the
// configurations and the wrapper scripts of the stock clients, format what is new, start what is not running, wait until every daemon
// serves. Attach only reads what Start has recorded. Stop ends the daemons and every YARN container that they left behind.
//
// Invariants:
//
//  1. One folder holds everything of a cluster: conf, logs, data, pids. Two clusters in two folders do not touch each other; each
//     has its own block of ports.
//  2. Every JVM carries -Dthalweg.rig.dir and -Dthalweg.rig.daemon; the KDC is known by the file of its process id. A process is signalled
//     only when its command line (or, for a container, its environment) names this cluster's folder.
//  3. Start and Stop may be called any number of times; a lock file lets one of them work at a time.
//  4. Every wait is bounded, by the context and by a limit of its own, and ends in one line that names the daemon and its log.
package rig
