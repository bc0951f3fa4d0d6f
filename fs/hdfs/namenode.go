package hdfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// protocol is the interface of the NameNode for clients.
var protocol = ipc.Protocol{Name: "org.apache.hadoop.hdfs.protocol.ClientProtocol", Version: 1}

const (
	firstPause = 2 * time.Millisecond // a block report is usually a millisecond late, safe mode seconds
	longPause  = time.Second
)

// budget gives a context without a deadline the configured one.
func (f *FileSystem) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, f.cfg.RetryTimeout)
}

// call runs one method of the NameNode and waits out what passes (invariant 2).
func (f *FileSystem) call(ctx context.Context, method string, req, resp proto.Message) error {
	ctx, cancel := f.budget(ctx)
	defer cancel()
	start := time.Now()
	pause := firstPause
	for {
		err := f.once(ctx, method, req, resp)
		if err == nil {
			f.contacted.Store(true)
			return nil
		}
		if !passes(err) {
			return err
		}
		if pause == firstPause {
			f.log.Debug().Str("method", method).Err(err).Msg("name node call has to wait")
		}
		if werr := ipc.Sleep(ctx, pause); werr != nil {
			return fmt.Errorf("%w (waited %s: %w)", err, time.Since(start).Round(time.Millisecond), werr)
		}
		pause = min(2*pause, longPause)
	}
}

// once repeats a call while it does not reach an active NameNode.
func (f *FileSystem) once(ctx context.Context, method string, req, resp proto.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	retry := ipc.Retry{Initial: 50 * time.Millisecond, Max: 2 * time.Second, OnRetry: func(attempt int, _ time.Duration, err error) {
		// A name that does not exist is a typing mistake until the cluster was reached once.
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound && !f.contacted.Load() && attempt+1 >= f.nameNodes {
			cancel(err)
		}
		if attempt == 0 {
			f.log.Warn().Str("method", method).Str("cluster", f.authority).Err(err).Msg("name node call failed, trying again")
		}
	}}
	err := f.nn.CallRetry(ctx, retry, method, req, resp)
	if errors.Is(err, ipc.ErrInvalidToken) { // it may have been replaced since the connection asked for it
		f.nn.Reset()
		err = f.nn.CallRetry(ctx, retry, method, req, resp)
	}
	if err != nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
			return cause // the reason for which OnRetry has given up
		}
	}
	return err
}

// defaultsLife is how long the NameNode's defaults hold (dfs.client.server-defaults.validity.period.ms).
const defaultsLife = time.Hour

// serverDefaults asks the NameNode for its defaults, once in a while.
func (f *FileSystem) serverDefaults(ctx context.Context) (*hdfspb.FsServerDefaultsProto, error) {
	f.mu.Lock()
	d, fresh := f.server, time.Since(f.serverAt) < defaultsLife
	f.mu.Unlock()
	if d != nil && fresh {
		return d, nil
	}
	resp := &hdfspb.GetServerDefaultsResponseProto{}
	if err := f.call(ctx, "getServerDefaults", &hdfspb.GetServerDefaultsRequestProto{}, resp); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server, f.serverAt = resp.GetServerDefaults(), time.Now()
	return f.server, nil
}

// defaults asks the NameNode for what the configuration leaves open.
func (f *FileSystem) defaults(ctx context.Context) (replication uint32, blockSize uint64, err error) {
	if f.cfg.Replication > 0 && f.cfg.BlockSize > 0 {
		return uint32(f.cfg.Replication), uint64(f.cfg.BlockSize), nil //nolint:gosec // checked in New
	}
	d, err := f.serverDefaults(ctx)
	if err != nil {
		return 0, 0, err
	}
	replication, blockSize = d.GetReplication(), d.GetBlockSize()
	if f.cfg.Replication > 0 {
		replication = uint32(f.cfg.Replication) //nolint:gosec // checked in New
	}
	if f.cfg.BlockSize > 0 {
		blockSize = uint64(f.cfg.BlockSize)
	}
	return replication, blockSize, nil
}

// fileInfo returns nil for what does not exist.
func (f *FileSystem) fileInfo(ctx context.Context, p string) (*hdfspb.HdfsFileStatusProto, error) {
	resp := &hdfspb.GetFileInfoResponseProto{}
	if err := f.call(ctx, "getFileInfo", &hdfspb.GetFileInfoRequestProto{Src: proto.String(p)}, resp); err != nil {
		return nil, err
	}
	return resp.GetFs(), nil
}

func (f *FileSystem) blocks(ctx context.Context, p string) (*hdfspb.LocatedBlocksProto, error) {
	resp := &hdfspb.GetBlockLocationsResponseProto{}
	req := &hdfspb.GetBlockLocationsRequestProto{Src: proto.String(p), Offset: proto.Uint64(0), Length: proto.Uint64(1<<63 - 1)}
	if err := f.call(ctx, "getBlockLocations", req, resp); err != nil {
		return nil, err
	}
	return resp.GetLocations(), nil
}

func (f *FileSystem) rename(ctx context.Context, from, to string) error {
	return f.call(ctx, "rename2", &hdfspb.Rename2RequestProto{Src: proto.String(from), Dst: proto.String(to), OverwriteDest: proto.Bool(true)},
		&hdfspb.Rename2ResponseProto{})
}

func (f *FileSystem) remove(ctx context.Context, p string, recursive bool) error {
	return f.call(ctx, "delete", &hdfspb.DeleteRequestProto{Src: proto.String(p), Recursive: proto.Bool(recursive)}, &hdfspb.DeleteResponseProto{})
}
