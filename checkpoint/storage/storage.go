// Package storage stores checkpoints and savepoints in a file system. It is layer L2 (imports fs, state, checkpoint/metadata).
//
// Layout, as in Flink:
//
//	<dir>/<job id>/chk-<n>/_metadata   exists only when the checkpoint is complete
//	<dir>/<job id>/chk-<n>/<file>      state of that checkpoint alone (only what exceeds the memory threshold)
//	<dir>/<job id>/shared/<file>       state that several checkpoints may reference, counted by storage/shared
//	<dir>/<job id>/taskowned/          reserved
//	<dir>/<job id>/_owner              whose files these are (Owner), while a job has them; of a claimed savepoint, in its directory
//	<target>/savepoint-<job>-<random>/ the same with everything in one directory
//
// Main flow: workers write files with the Sink; the coordinator then calls WriteMetadata; at restore ReadMetadata and Source lead back
// to the files. Directories are made by the first file in them, so a checkpoint whose state stays below the threshold is one file.
//
// Invariants:
//
//  1. A _metadata that exists is complete: it is written under another name, closed, then renamed. Nothing is ever appended to.
//  2. The _metadata of a directory is written once: the name it is written under is created exclusively, and then the final name
//     must not exist, so that two owners (an application attempt and its successor) cannot overwrite each other's checkpoint.
//     No checkpoint is completed in a folder from which the job's mark is gone: it is another one of the same name. A folder has one owner at a time, which is the job whose mark was created there (Storage.Own).
//  3. Names inside of _metadata are relative to its directory.
//  4. File names are unique; files of checkpoint n begin with "<n>-", so that what an aborted checkpoint left is told apart by name.
package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"os/user"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Names of the layout.
const (
	MetadataName  = "_metadata"
	inProgress    = "_metadata.inprogress"
	sharedName    = "shared"
	taskOwnedName = "taskowned"
	checkpointDir = "chk-"
)

// Storage is one job's place for checkpoints. Safe for concurrent use.
type Storage struct {
	fs  fs.FileSystem
	dir string // path of <dir>/<job id>
	far *roots // other file systems, nil without a registry
	// owned: the job has marked its folder (Own).
	owned atomic.Bool
}

// Option changes what New returns.
type Option func(*Storage)

// WithRegistry lets a Storage reach savepoints and claimed checkpoints in other file systems than its own.
func WithRegistry(reg *fs.Registry) Option { return func(s *Storage) { s.far = &roots{reg: reg} } }

// New returns the storage of a job below dir, a path inside of f (as fs.Registry.Resolve returns it). It touches nothing.
func New(f fs.FileSystem, dir string, job graph.JobID, opts ...Option) *Storage {
	s := &Storage{fs: f, dir: path.Join(path.Clean("/"+dir), job.String())}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Close gives back the other file systems that were opened (WithRegistry); its own stays the caller's.
func (s *Storage) Close() error {
	if s.far == nil {
		return nil
	}
	return s.far.close()
}

// at finds the file system and the path of a URI.
func (s *Storage) at(ctx context.Context, uri string) (fs.FileSystem, string, error) {
	root, p, err := split(uri)
	if err != nil {
		return nil, "", err
	}
	if root == s.fs.URI() {
		return s.fs, p, nil
	}
	if s.far == nil {
		return nil, "", fmt.Errorf("%s is not in %s, the file system of the checkpoints: %w", uri, s.fs.URI(), fs.ErrScheme)
	}
	return s.far.at(ctx, root+p)
}

// Dir is the URI of the job's directory, <dir>/<job id>.
func (s *Storage) Dir() string { return s.fs.URI() + s.dir }

// CheckpointDir is the URI of a checkpoint's directory.
func (s *Storage) CheckpointDir(id int64) string { return CheckpointDir(s.Dir(), id) }

// SharedDir is the URI of the directory of shared files.
func (s *Storage) SharedDir() string { return SharedDir(s.Dir()) }

// CheckpointDir is the directory of checkpoint id below a job's directory.
func CheckpointDir(jobDir string, id int64) string {
	return jobDir + "/" + checkpointDir + strconv.FormatInt(id, 10)
}

// SharedDir is the directory of shared files below a job's directory.
func SharedDir(jobDir string) string { return jobDir + "/" + sharedName }

// NewSavepointDir returns a fresh directory name below target: savepoint-<first six digits of the job id>-<random>, as Flink's.
func NewSavepointDir(target string, job graph.JobID) string {
	return clean(target) + "/savepoint-" + job.String()[:6] + "-" + randomHex(6)
}

// IsSavepointDir reports whether the directory's name is one that NewSavepointDir makes.
func IsSavepointDir(uri string) bool { return strings.HasPrefix(path.Base(uri), "savepoint-") }

// DirOf is the directory of a checkpoint that may be named by its _metadata file.
func DirOf(uri string) string {
	uri = clean(uri)
	if dir, ok := strings.CutSuffix(uri, "/"+MetadataName); ok {
		return dir
	}
	return uri
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, crypto/rand's contract
	return hex.EncodeToString(b)
}

// notWritable is the error of a root in which checkpoints cannot be written.
func (s *Storage) notWritable(ctx context.Context, err error) error {
	return fmt.Errorf("storage: checkpoint directory %s is not writable by user %s: %w; set execution.checkpointing.dir to a folder that is",
		s.Dir(), s.user(ctx), err)
}

// Identity is implemented by file systems that act as a named user (fs/hdfs); others act as the process's.
type Identity interface{ User() string }

func (s *Storage) user(context.Context) string {
	if id, ok := s.fs.(Identity); ok {
		return id.User()
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// LastID is the highest checkpoint number of which anything is stored, 0 for none. A new application attempt goes on above it.
func (s *Storage) LastID(ctx context.Context) (int64, error) {
	infos, err := s.fs.List(ctx, s.dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("storage: list %s: %w", s.Dir(), err)
	}
	var last int64
	for _, i := range infos {
		if n, ok := checkpointID(path.Base(i.Path)); ok {
			last = max(last, n)
		}
	}
	return last, nil
}

// checkpointID parses the name of a checkpoint's directory.
func checkpointID(name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, checkpointDir)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && n >= 0 && rest == strconv.FormatInt(n, 10)
}

// FileCheckpoint is the number of the checkpoint that a state file (name or URI) was written for; ok is false for files of savepoints.
func FileCheckpoint(name string) (int64, bool) {
	num, _, ok := strings.Cut(path.Base(name), "-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(num, 10, 64)
	return n, err == nil && n >= 0
}

// OfCheckpoint reports whether a state file was written for a checkpoint, as far as its name tells.
func OfCheckpoint(name string, id int64) bool {
	n, known := FileCheckpoint(name)
	return !known || n == id
}
