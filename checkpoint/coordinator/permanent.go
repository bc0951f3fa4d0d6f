package coordinator

import (
	"context"
	"errors"
	iofs "io/fs"
	"net"
	"net/url"
	"slices"
	"syscall"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// decisions are what a store says about a name or about us; they stay the same until somebody changes the store or the request.
var decisions = []error{
	storage.ErrClaimed, fs.ErrScheme,
	iofs.ErrPermission, iofs.ErrInvalid, iofs.ErrExist,
	syscall.ENOTDIR, syscall.EISDIR, syscall.EROFS, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.ENOTSUP,
	ipc.ErrNoMechanism, ipc.ErrMalformed, ipc.ErrTooLarge,
}

// permanent errors do not go away by trying the same again. While a write is repeated no other checkpoint is taken, so what can never
// work has to end at once. A store that cannot be reached, that starts, or that is full is none: those pass.
func permanent(err error) bool {
	if slices.ContainsFunc(decisions, func(d error) bool { return errors.Is(err, d) }) {
		return true
	}
	// A name that is no URI, or no address.
	var uri *url.Error
	var address *net.AddrError
	if errors.As(err, &uri) || errors.As(err, &address) {
		return true
	}
	// A host that does not exist. One that the file system had reached before it waits for itself, since resolvers fail, too: then the
	// end of its time is in the error.
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return dns.IsNotFound && !errors.Is(err, context.DeadlineExceeded)
	}
	// The server's own decision, unless it says that it cannot serve now (safe mode, standby) or has no room.
	var remote *ipc.RemoteError
	return errors.As(err, &remote) && ipc.Classify(remote) == ipc.Final && !errors.Is(err, fs.ErrUnavailable) && !errors.Is(err, fs.ErrQuota)
}
