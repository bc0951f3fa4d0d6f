// Package submit brings an application to YARN: the checks that are cheap, staging, and the submission itself. Layer L5; imports am,
// staging, fs and yarnrpc/client.
//
// Main flow of Submit: reserve an application id and look at queue and sizes, at the same time look into the staging folder and send
// what is missing there; then make the application's folder and submit. Whatever fails, nothing is left behind: no application, no
// folder, no file that this submission sent.
//
// Invariants:
//
//  1. Every fault that can be seen here is found before anything is sent, and is one line that names the key to change.
//  2. Every wait is bounded by client.connection-timeout.
package submit
