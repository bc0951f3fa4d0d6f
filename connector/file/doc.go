// Package file reads and writes files of lines, on any file system of package fs (file://, hdfs://). Layer L1.
//
// The source lists its paths in the enumerator and cuts files into byte ranges; readers ask for one range at a time. A line belongs to the
// range that holds its first byte, so a range that does not begin the file skips to the first line that starts in it. A split's state is the
// offset of its next line. Bounded by default; Monitor makes it unbounded.
//
// The sink writes part files. A part is written below <directory>/_thalweg/<key>, whose name readers of Hadoop skip; it is closed at the
// checkpoint's barrier (in-progress becomes pending) and renamed to its place when the checkpoint is complete (committed). So what stands
// in the directory is exactly what completed checkpoints cover, and files never change. Files: option.go, source.go, enumerate.go, split.go,
// reader.go, fetch.go (source), sink.go, writer.go, commit.go, leftovers.go (sink).
//
// Invariants: names of parts are never used twice; a pending file is removed only by an attempt whose restored checkpoint does not hold it, of
// the same job or of one that was restored from that job's checkpoints and finds that the job has ended.
//
// Source: Flink's FileSource (TextLineInputFormat) and FileSink (row formats, OnCheckpointRollingPolicy).
package file
