// Package session is what an application master adds for a session: it takes the programs of jobs, piece by piece, keeps them by content, plans
// each job in a process of its own, and hands it to the dispatcher. It implements rest.Session. Layer L5.
//
// Main flow: Uploaded and Append gather a program in a local file; the last piece completes it: its hash and its kind are checked, and it is
// stored in the application's folder, where TaskManagers and later attempts find it. Submit runs the program in role plan, with the session's
// configuration and the job's over it, which is what the job's other processes get too, and submits the graph.
//
// Invariants:
//
//  1. What a caller names is a hash, which is checked before it becomes a path.
//  2. A program has its name, here and in the application's folder, only when it is complete.
//  3. User code runs in processes of its own, so many of them at a time as planners says.
package session
