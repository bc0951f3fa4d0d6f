// Package doctor looks whether a job could run on the cluster: the configuration, the file system and its folders, the ResourceManager with queue and
// container sizes, the nodes, Kafka. Layer L5. `thalweg doctor` prints what it finds.
//
// Main flow: Examine runs the checks, those that do not need each other at the same time, and hands out each finding when it is known, in a fixed order.
//
// Invariants:
//
//  1. Nothing stays behind: a folder that is missing is not made, files that a check writes are removed, also when it is interrupted.
//  2. A check that cannot be made, since another failed, says so as a warning that names the other.
//  3. Each finding is one line, without a secret; one that is not ok says what to do.
package doctor
