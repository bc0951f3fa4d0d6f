// Package rest is the cluster's HTTP interface: Flink's paths and JSON, so that tools written for Flink work, Prometheus metrics under
// /metrics, and the status page of runtime/webui at /. It is layer L3 and reads everything from the dispatcher and the resource manager.
//
// Invariants:
//
//  1. Every answer but files, metrics and the page is JSON; errors are {"errors": [...]} with the matching status.
//  2. Request bodies, ids and names are bounded and checked before they are used; no path leaves the log folder.
//  3. Configuration is shown redacted.
//  4. What the ResourceManager's proxy must be able to reach works with GET and relative URLs.
//
// **Source:** Flink 2.x rest_v1_dispatcher.yml; job and checkpoint fields as there. Fields of features that do not exist are left out or
// have the value that says so.
package rest
