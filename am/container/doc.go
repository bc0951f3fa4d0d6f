// Package container is the inside of a container on YARN, the same for the ApplicationMaster and the TaskManagers: what the client and
// YARN tell the process (credentials, environment, folders), its log files, and the file systems of the application. Layer L5; it
// carries no YARN protocol.
//
// Invariants:
//
//  1. What is secret comes from the credentials file, which YARN writes for the owner only, never from the environment.
//  2. Local data stays inside of YARN's folders for the application; a folder that cannot be written is skipped.
package container
