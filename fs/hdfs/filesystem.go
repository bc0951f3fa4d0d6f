package hdfs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

const (
	// CreateFlag.CREATE without OVERWRITE: the NameNode refuses an existing name. SHOULD_REPLICATE (0x80): also where the folder's files are
	// erasure coded, which this writer does not do.
	createFlag    = 1 | 0x80
	newFilePerm   = 0o644 // before Chmod
	renewInterval = 20 * time.Second
)

// FileSystem is one HDFS cluster as one user. Make it with New or through a Registry.
type FileSystem struct {
	cfg        Config
	authority  string
	log        zerolog.Logger
	nn         *ipc.Client
	nameNodes  int          // behind nn
	clientName string       // holds the leases of all files that this FileSystem writes
	contacted  atomic.Bool  // a NameNode has answered
	answered   atomic.Bool  // a DataNode has
	unanswered atomic.Int32 // connections to DataNodes that ended at their beginning, before

	wg     sync.WaitGroup
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // ends at Close

	mu       sync.Mutex
	server   *hdfspb.FsServerDefaultsProto
	serverAt time.Time                      // when it was asked for
	key      *hdfspb.DataEncryptionKeyProto // of clusters with dfs.encrypt.data.transfer
	writers  map[*writer]struct{}           // open ones
	renewer  bool                           // the goroutine runs
	wake     chan struct{}                  // tells it that the last writer has closed
}

var _ fs.FileSystem = (*FileSystem)(nil)

// New makes the file system behind authority, a nameservice of cfg or host[:port]. Nothing is dialed before the first operation.
func New(authority string, cfg Config) (*FileSystem, error) {
	addrs, err := cfg.addresses(authority)
	if err != nil {
		return nil, err
	}
	cfg.setDefaults(len(addrs))
	if cfg.Replication < 0 || cfg.Replication > 512 || cfg.BlockSize < 0 {
		return nil, fmt.Errorf("hdfs: replication %d, block size %d: %w", cfg.Replication, cfg.BlockSize, iofs.ErrInvalid)
	}
	if authority == "" {
		authority = cfg.DefaultAuthority
	}
	opts := []ipc.Option{
		ipc.WithDial(cfg.Dial), ipc.WithConnectTimeout(cfg.ConnectTimeout), ipc.WithCallTimeout(cfg.IOTimeout), ipc.WithLogger(*cfg.Logger),
	}
	if cfg.User != "" {
		opts = append(opts, ipc.WithUser(ipc.User{Effective: cfg.User}))
	}
	opts = append(opts, cfg.IPC...)
	if cfg.Login != nil {
		opts = append(opts, cfg.Login(authority, addrs)...)
	}
	nn, err := ipc.NewClient(addrs, protocol, opts...)
	if err != nil {
		return nil, fmt.Errorf("hdfs: cluster %s: %w", authority, err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its contract
	f := &FileSystem{
		cfg: cfg, authority: authority, log: *cfg.Logger, nn: nn, nameNodes: len(addrs), clientName: "thalweg_" + hex.EncodeToString(id[:]),
		writers: map[*writer]struct{}{}, wake: make(chan struct{}, 1),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Create implements fs.FileSystem.
func (f *FileSystem) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	clean, err := begin(ctx, "create", p)
	if err != nil {
		return nil, err
	}
	w, err := f.create(ctx, clean, overwrite)
	if err != nil {
		return nil, fail("create", p, err)
	}
	return w, nil
}

func (f *FileSystem) create(ctx context.Context, p string, overwrite bool) (*writer, error) {
	name := p
	if overwrite {
		info, err := f.fileInfo(ctx, p)
		if err != nil {
			return nil, err
		}
		if info.GetFileType() == hdfspb.HdfsFileStatusProto_IS_DIR && info != nil {
			return nil, syscall.EISDIR
		}
		name = fs.TempName(p)
	}
	replication, blockSize, err := f.defaults(ctx)
	if err != nil {
		return nil, err
	}
	resp := &hdfspb.CreateResponseProto{}
	err = f.call(ctx, "create", &hdfspb.CreateRequestProto{
		Src: proto.String(name), Masked: &hdfspb.FsPermissionProto{Perm: proto.Uint32(newFilePerm)}, ClientName: proto.String(f.clientName),
		CreateFlag: proto.Uint32(createFlag), CreateParent: proto.Bool(true), Replication: proto.Uint32(replication),
		BlockSize: proto.Uint64(blockSize),
	}, resp)
	if err != nil {
		return nil, err
	}
	w := newWriter(ctx, f, p, name, resp.GetFs().GetFileId(), int64(blockSize)) //nolint:gosec // sizes fit
	f.addWriter(w)
	return w, nil
}

// Open implements fs.FileSystem.
func (f *FileSystem) Open(ctx context.Context, p string) (fs.Reader, error) {
	clean, err := begin(ctx, "open", p)
	if err != nil {
		return nil, err
	}
	located, err := f.blocks(ctx, clean)
	switch {
	case err != nil:
	case located == nil:
		err = iofs.ErrNotExist
	case located.FileEncryptionInfo != nil:
		err = errEncrypted
	case located.EcPolicy != nil:
		err = errStriped
	}
	if err != nil {
		return nil, fail("open", p, err)
	}
	return newReader(ctx, f, clean, located), nil
}

// Rename implements fs.FileSystem.
func (f *FileSystem) Rename(ctx context.Context, from, to string) error {
	both := from + " to " + to
	a, err := begin(ctx, "rename", from)
	if err != nil {
		return err
	}
	b, err := begin(ctx, "rename", to)
	if err != nil {
		return err
	}
	if a == b { // the NameNode refuses it
		_, err := f.Stat(ctx, a)
		return err
	}
	if err := f.rename(ctx, a, b); err != nil {
		return fail("rename", both, err)
	}
	return nil
}

// Remove implements fs.FileSystem.
func (f *FileSystem) Remove(ctx context.Context, p string, recursive bool) error {
	clean, err := begin(ctx, "remove", p)
	if err != nil {
		return err
	}
	if clean == "/" {
		return fail("remove", p, iofs.ErrInvalid)
	}
	if err := f.remove(ctx, clean, recursive); err != nil && meaning(err) != iofs.ErrNotExist { //nolint:errorlint // a table's own value
		return fail("remove", p, err)
	}
	return nil
}

// Mkdir implements fs.FileSystem.
func (f *FileSystem) Mkdir(ctx context.Context, p string, perm uint32) error {
	clean, err := begin(ctx, "mkdir", p)
	if err != nil {
		return err
	}
	err = f.call(ctx, "mkdirs", &hdfspb.MkdirsRequestProto{
		Src: proto.String(clean), Masked: &hdfspb.FsPermissionProto{Perm: proto.Uint32(perm & 0o1777)}, CreateParent: proto.Bool(true),
	}, &hdfspb.MkdirsResponseProto{})
	if err != nil {
		return fail("mkdir", p, err)
	}
	return nil
}

// Stat implements fs.FileSystem.
func (f *FileSystem) Stat(ctx context.Context, p string) (fs.Info, error) {
	clean, err := begin(ctx, "stat", p)
	if err != nil {
		return fs.Info{}, err
	}
	info, err := f.fileInfo(ctx, clean)
	if err == nil && info == nil {
		err = iofs.ErrNotExist
	}
	if err != nil {
		return fs.Info{}, fail("stat", p, err)
	}
	return describe(clean, info), nil
}

// List implements fs.FileSystem.
func (f *FileSystem) List(ctx context.Context, dir string) ([]fs.Info, error) {
	clean, err := begin(ctx, "list", dir)
	if err != nil {
		return nil, err
	}
	var out []fs.Info
	after := []byte{}
	for {
		resp := &hdfspb.GetListingResponseProto{}
		req := &hdfspb.GetListingRequestProto{Src: proto.String(clean), StartAfter: after, NeedLocation: proto.Bool(false)}
		err := f.call(ctx, "getListing", req, resp)
		if err == nil && resp.DirList == nil {
			err = iofs.ErrNotExist
		}
		if err != nil {
			return nil, fail("list", dir, err)
		}
		part := resp.GetDirList().GetPartialListing()
		for _, s := range part {
			if len(s.GetPath()) == 0 { // a file lists itself, under no name
				return nil, fail("list", dir, syscall.ENOTDIR)
			}
			if name := string(s.GetPath()); !fs.IsTemp(name) {
				out = append(out, describe(path.Join(clean, name), s))
			}
		}
		if resp.GetDirList().GetRemainingEntries() == 0 || len(part) == 0 {
			break
		}
		after = part[len(part)-1].GetPath()
	}
	slices.SortFunc(out, func(a, b fs.Info) int { return cmp.Compare(a.Path, b.Path) })
	return out, nil
}

// Chmod implements fs.FileSystem.
func (f *FileSystem) Chmod(ctx context.Context, p string, perm uint32) error {
	clean, err := begin(ctx, "chmod", p)
	if err != nil {
		return err
	}
	err = f.call(ctx, "setPermission", &hdfspb.SetPermissionRequestProto{
		Src: proto.String(clean), Permission: &hdfspb.FsPermissionProto{Perm: proto.Uint32(perm & 0o1777)},
	}, &hdfspb.SetPermissionResponseProto{})
	if err != nil {
		return fail("chmod", p, err)
	}
	return nil
}

// URI implements fs.FileSystem.
func (f *FileSystem) URI() string { return "hdfs://" + f.authority }

// Reset makes the next NameNode call log in again, for instance with a renewed token.
func (f *FileSystem) Reset() { f.nn.Reset() }

// Close ends open files with an error and waits for the goroutines.
func (f *FileSystem) Close() error {
	f.cancel()
	err := f.nn.Close()
	f.wg.Wait()
	if err != nil {
		return fmt.Errorf("hdfs: close %s: %w", f.authority, err)
	}
	return nil
}

// begin checks the context and cleans the path.
func begin(ctx context.Context, op, p string) (string, error) {
	err := ctx.Err()
	clean := p
	if err == nil {
		clean, err = fs.CleanPath(p)
	}
	if err != nil {
		return "", fail(op, p, err)
	}
	return clean, nil
}

func describe(p string, s *hdfspb.HdfsFileStatusProto) fs.Info {
	return fs.Info{
		Path: p, Size: int64(s.GetLength()), ModTime: time.UnixMilli(int64(s.GetModificationTime())), //nolint:gosec // both fit
		IsDir: s.GetFileType() == hdfspb.HdfsFileStatusProto_IS_DIR, Mode: s.GetPermission().GetPerm() & 0o777, Owner: s.GetOwner(),
	}
}

// addWriter keeps the lease alive while w is open.
func (f *FileSystem) addWriter(w *writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writers[w] = struct{}{}
	if !f.renewer && f.ctx.Err() == nil {
		f.renewer = true
		f.wg.Go(f.renew)
	}
}

func (f *FileSystem) dropWriter(w *writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.writers, w)
	if len(f.writers) == 0 {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// renew tells the NameNode that the client lives, and the DataNodes that open blocks are not forgotten. It ends with the last writer.
func (f *FileSystem) renew() {
	t := time.NewTicker(renewInterval)
	defer t.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.wake:
		case <-t.C:
			ctx, cancel := context.WithTimeout(f.ctx, renewInterval)
			req := &hdfspb.RenewLeaseRequestProto{ClientName: proto.String(f.clientName)}
			if err := f.call(ctx, "renewLease", req, &hdfspb.RenewLeaseResponseProto{}); err != nil {
				f.log.Warn().Err(err).Msg("lease was not renewed")
			}
			cancel()
		}
		f.mu.Lock()
		open := make([]*writer, 0, len(f.writers))
		for w := range f.writers {
			open = append(open, w)
		}
		if len(open) == 0 {
			f.renewer = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		for _, w := range open {
			w.heartbeat()
		}
	}
}
