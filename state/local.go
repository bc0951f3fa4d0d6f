package state

import "context"

// LocalSink is a Sink that also keeps copies on the local disk, for a restore that does not read the checkpoint's folder. Exclusive streams
// it copies by itself. A Shared file is there already, and is not sent again with each snapshot: the snapshot names each one that it
// refers to, and says where the file is.
type LocalSink interface {
	// Keep links the file at path, whose content is ref's, into the copy. It never fails: a file that cannot be kept is read from the
	// checkpoint's folder at restore.
	Keep(ref FileRef, path string)
}

// LocalSource is a Source that knows local copies.
type LocalSource interface {
	// Link makes path a file of ref's content from a local copy whose size and checksum are right. Without one it makes nothing and
	// returns false. The file must not be written to: the copy shares its content. Safe for concurrent use.
	Link(ctx context.Context, ref FileRef, path string) bool
}

// Chooser is a Sink that may want a file stored again that a snapshot could refer to.
type Chooser interface {
	// Reuse reports whether the snapshot shall refer to a Shared file of an earlier one. It is asked once about each.
	Reuse(ref FileRef) bool
}

// Anew is a Sink for a snapshot that is to refer to no file of an earlier one: all of it is written.
type Anew struct {
	Sink
	Apart bool // nor may later ones refer to its files: it is a savepoint, which stands alone
}

// Keep implements LocalSink, if the Sink does.
func (a Anew) Keep(ref FileRef, path string) {
	if l, ok := a.Sink.(LocalSink); ok {
		l.Keep(ref, path)
	}
}
