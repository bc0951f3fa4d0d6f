// Package staging puts an application's files into the cluster's file system by content, and takes them away again. Layer L5; imports fs
// and yarnrpc/{proto,yarn}.
//
//	<root>/lib/<month>/<sha256>-<name> files by content, shared by the user's applications of that month; what is there is not sent again
//	<root>/lib/.upload-<day>/          files that are being sent
//	<root>/<application id>/           what belongs to one application only, removed with it
//	<root>/<application id>/lib-<month>  an empty folder: the application uses files of that month
//	<root>/ckp/                        default folder of checkpoints; outlives applications
//	<root>/history/                    default folder of the archives of ended jobs; likewise
//
// Main flow: Open checks that the root can be written, Put or PutAll stage files, Resource makes the descriptor for YARN,
// Undo takes back what a submission that failed had put there, RemoveApplication ends an application's folder, Sweep removes the files of
// past months that nothing uses.
//
// Invariants:
//
//  1. A name in lib tells the content: a file of that name and of the right size is never written again, so that its modification
//     time, which YARN's caches compare, stays as it is.
//  2. A file gets its name when it is complete.
//  3. A resource is PUBLIC only where everybody can read the file and enter all folders above it: the NodeManager's own rule, else it refuses
//     the container. PUBLIC files are fetched inside the NodeManager; one that is not costs each container a localiser process
//     and a second.
//  4. A submission takes files of the present month only. So whoever finds a month that is long past can tell from the applications' folders
//     alone whether it is used: no time of a file has to be touched, which invariant 1 forbids.
//
// Source: Hadoop FSDownload.isPublic and ContainerLocalizer, Hadoop 3.4.
package staging
