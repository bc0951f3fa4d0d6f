// Package history keeps the last REST documents of ended jobs in files, and serves them. Layer L3; imports fs and runtime/webui.
//
//	<folder>/<job id>    {"archive": [{"path": "/jobs/<job id>", "json": "{...}"}, ...]}, as Flink's archivist writes it
//
// Main flow: Write asks a cluster's own REST handler for the documents of a job that has ended, and stores the answers, so that they are what
// the cluster showed; Prune keeps the newest ones. Open reads a folder again; Handler serves what is in folders under Flink's paths, with the
// status page.
//
// Invariants:
//
//  1. An archive gets its name when it is complete, and is never changed.
//  2. What is read may be anything: files that are no archives are left out, one by one, and told of.
//  3. Documents are what the cluster's REST interface gave, so they are redacted.
//
// Source: Flink 2.x FsJsonArchivist, HistoryServer, HistoryServerArchiveFetcher; the JsonArchivist handlers for the paths.
package history
