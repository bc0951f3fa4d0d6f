package hdfs

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"
	"syscall"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// Classes of HDFS's exceptions.
const (
	errSafeMode         = ipc.Class("org.apache.hadoop.hdfs.server.namenode.SafeModeException")
	errNotReplicatedYet = ipc.Class("org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException")
	errBeingCreated     = ipc.Class("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException")
	errRecovery         = ipc.Class("org.apache.hadoop.hdfs.protocol.RecoveryInProgressException")
	errExists           = ipc.Class("org.apache.hadoop.fs.FileAlreadyExistsException")
	errParentNotDir     = ipc.Class("org.apache.hadoop.fs.ParentNotDirectoryException")
	errPathNotDir       = ipc.Class("org.apache.hadoop.fs.PathIsNotDirectoryException")
	errNotEmpty         = ipc.Class("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException")
	errNSQuota          = ipc.Class("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException")
	errDSQuota          = ipc.Class("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException")
	errTypeQuota        = ipc.Class("org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException")
	errIllegalArgument  = ipc.Class("org.apache.hadoop.HadoopIllegalArgumentException")
	errInvalidPath      = ipc.Class("org.apache.hadoop.fs.InvalidPathException")
	errCryptoVersion    = ipc.Class("org.apache.hadoop.hdfs.UnknownCryptoProtocolVersionException")
	errPathComponent    = ipc.Class("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException")
	errNoTargets        = "could only be written to" // an IOException of addBlock
	errIsNotAFile       = "is not a file"            // in the FileNotFoundException of getBlockLocations
	errIsNotADir        = "(is not a directory)"     // in the AccessControlException of the traversal check
)

// meanings maps exceptions to the errors that callers look for.
var meanings = []struct {
	class ipc.Class
	means error
}{
	{ipc.ErrFileNotFound, iofs.ErrNotExist},
	{ipc.ErrAccessControl, iofs.ErrPermission},
	{errExists, iofs.ErrExist},
	{errBeingCreated, iofs.ErrExist},
	{errParentNotDir, syscall.ENOTDIR},
	{errPathNotDir, syscall.ENOTDIR},
	{errNotEmpty, syscall.ENOTEMPTY},
	{errNSQuota, fs.ErrQuota},
	{errDSQuota, fs.ErrQuota},
	{errTypeQuota, fs.ErrQuota},
	{errIllegalArgument, iofs.ErrInvalid},
	{errInvalidPath, iofs.ErrInvalid},
	{errPathComponent, iofs.ErrInvalid},
	{errCryptoVersion, errors.ErrUnsupported},
	{errSafeMode, fs.ErrSafeMode},
	{errNotReplicatedYet, fs.ErrUnavailable},
	{errRecovery, fs.ErrUnavailable},
	{ipc.ErrStandby, fs.ErrUnavailable},
	{ipc.ErrRetriable, fs.ErrUnavailable},
	{ipc.ErrInvalidToken, iofs.ErrPermission},
}

// advice is what to do about exceptions whose words do not say it.
var advice = []struct {
	class ipc.Class
	words string
}{
	{errNSQuota, "hdfs dfsadmin -setQuota raises it"},
	{errDSQuota, "hdfs dfsadmin -setSpaceQuota raises it"},
	{errTypeQuota, "hdfs dfsadmin -setSpaceQuota with -storageType raises it"},
	{ipc.ErrInvalidToken, "the delegation token was cancelled or has ended: start again, with security.kerberos.login.keytab and .principal tokens are replaced in time"},
	{errCryptoVersion, "the folder lies in an encryption zone, where Thalweg neither reads nor writes: use another folder"},
}

var (
	errEncrypted = fmt.Errorf("the file lies in an encryption zone, where Thalweg neither reads nor writes: copy it to another folder: %w", errors.ErrUnsupported)
	errStriped   = fmt.Errorf("the file is erasure coded, which Thalweg does not read: copy it to a replicated folder: %w", errors.ErrUnsupported)
)

// opError is the error of an operation: its text is "hdfs: op path: meaning: the server's words".
type opError struct {
	text  string
	means error // may be nil
	cause error
}

func (e *opError) Error() string { return e.text }

func (e *opError) Unwrap() []error {
	if e.means == nil {
		return []error{e.cause}
	}
	return []error{e.means, e.cause}
}

// fail turns what went wrong into the error of an operation, once.
func fail(op, path string, err error) error {
	var done *opError
	if errors.As(err, &done) {
		return err
	}
	means := meaning(err)
	cause := err.Error()
	var remote *ipc.RemoteError
	if errors.As(err, &remote) {
		cause, _, _ = strings.Cut(remote.Message, "\n")
		if means == nil || remote.Message == "" {
			cause = remote.Error()
		}
		for _, a := range advice {
			switch {
			case !errors.Is(err, a.class):
			case a.class == errCryptoVersion: // which speaks of versions of a protocol alone
				cause = a.words
			default:
				cause += " (" + a.words + ")"
			}
		}
	}
	text := fmt.Sprintf("hdfs: %s %s: %s", op, path, cause)
	if means != nil && !strings.Contains(strings.ToLower(cause), strings.ToLower(means.Error())) {
		text = fmt.Sprintf("hdfs: %s %s: %v: %s", op, path, means, cause)
	}
	return &opError{text: text, means: means, cause: err}
}

func meaning(err error) error {
	var remote *ipc.RemoteError
	if errors.As(err, &remote) {
		for _, m := range meanings {
			if errors.Is(err, m.class) {
				switch {
				case m.class == ipc.ErrFileNotFound && strings.Contains(remote.Message, errIsNotAFile):
					return syscall.EISDIR
				case m.class == ipc.ErrAccessControl && strings.Contains(remote.Message, errIsNotADir):
					return syscall.ENOTDIR // said to users, the superuser gets ParentNotDirectoryException
				}
				return m.means
			}
		}
		if noTargets(err) {
			return fs.ErrUnavailable
		}
		return nil
	}
	switch {
	case errors.Is(err, errChecksum):
		return fs.ErrCorrupt
	case errors.Is(err, errors.ErrUnsupported):
		return errors.ErrUnsupported
	case errors.Is(err, sasl.ErrProtection), errors.Is(err, ipc.ErrNoMechanism):
		return nil // the same tomorrow
	}
	var conn *ipc.ConnError
	var dn *datanodeError
	if errors.As(err, &conn) || errors.As(err, &dn) || errors.Is(err, ipc.ErrTimeout) {
		return fs.ErrUnavailable
	}
	if errors.Is(err, ipc.ErrClosed) {
		return iofs.ErrClosed
	}
	return nil
}

// noTargets says that the NameNode found no DataNode for a block.
func noTargets(err error) bool {
	var remote *ipc.RemoteError
	return errors.As(err, &remote) && remote.Class == string(ipc.ErrJavaIO) && strings.Contains(remote.Message, errNoTargets)
}

// passes says that the NameNode refused now and may not later: wait and ask again. What ipc.Classify calls retriable is not here, its
// Retry has waited for that already.
func passes(err error) bool {
	switch {
	case errors.Is(err, errSafeMode):
		// Ends when enough blocks are reported, or by an administrator.
	case errors.Is(err, errNotReplicatedYet):
		// The DataNode has the block before the last but its report has not arrived: milliseconds, more under load.
	case errors.Is(err, errRecovery):
		// Another writer died; the NameNode is closing its file.
	case noTargets(err):
		// DataNodes start later than the NameNode, or the only one is being restarted.
	default:
		return false
	}
	return true
}
