package hdfs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

const (
	keepLimit    = 4 << 20 // bytes of an open block that are kept to send them again
	abortTimeout = 10 * time.Second
)

// writer is an open file. The lock is held over I/O: a file has one user.
type writer struct {
	f         *FileSystem
	ctx       context.Context //nolint:containedctx // it is the life of the open file
	path      string
	name      string // what is written: path, or a temporary name that Close renames to it
	fileID    uint64
	blockSize int64

	mu      sync.Mutex
	done    error // why nothing can be written any more
	buf     []byte
	block   *blockWriter
	prev    *hdfspb.ExtendedBlockProto // the block before
	kept    []byte                     // what the open block has been given, while it is at most keepLimit
	tooMuch bool                       // it is more
	exclude []*hdfspb.DatanodeInfoProto
}

func newWriter(ctx context.Context, f *FileSystem, path, name string, fileID uint64, blockSize int64) *writer {
	return &writer{f: f, ctx: ctx, path: path, name: name, fileID: fileID, blockSize: blockSize}
}

// Write implements io.Writer. It returns when the data is on its way, at most 4 MiB ahead of the DataNodes.
func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		return 0, fail("write", w.path, err)
	}
	n := 0
	for n < len(p) {
		room := int(min(packetData-int64(len(w.buf)), w.blockSize-w.inBlock()))
		part := p[n:min(n+room, len(p))]
		var err error
		if len(w.buf) == 0 && len(part) == packetData {
			err = w.send(part)
		} else {
			w.buf = append(w.buf, part...)
			if len(w.buf) == packetData || w.inBlock() == w.blockSize {
				err = w.flush()
			}
		}
		if err == nil && w.inBlock() == w.blockSize {
			err = w.endBlock()
		}
		if err != nil {
			w.done = err
			return n, fail("write", w.path, err)
		}
		n += len(part)
	}
	return n, nil
}

func (w *writer) check() error {
	switch {
	case w.done != nil:
		return w.done
	case w.ctx.Err() != nil:
		return w.ctx.Err()
	case w.f.ctx.Err() != nil:
		return iofs.ErrClosed
	}
	return nil
}

// inBlock is how many bytes the current block has, those that wait included.
func (w *writer) inBlock() int64 {
	n := int64(len(w.buf))
	if w.block != nil {
		n += w.block.offset
	}
	return n
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	data := w.buf
	w.buf = w.buf[:0]
	return w.send(data)
}

// send gives data to the open block, opening one first, and repairs what can be repaired.
func (w *writer) send(data []byte) error {
	if w.block == nil {
		if err := w.open(w.ctx); err != nil {
			return err
		}
	}
	if !w.tooMuch {
		if len(w.kept)+len(data) <= keepLimit {
			w.kept = append(w.kept, data...)
		} else {
			w.tooMuch, w.kept = true, nil
		}
	}
	if err := w.block.send(data, false); err != nil {
		_, err = w.repair(err)
		return err
	}
	return nil
}

// open asks for a block and connects to its DataNodes; nodes that do not answer are avoided.
func (w *writer) open(ctx context.Context) error {
	ctx, cancel := w.f.budget(ctx)
	defer cancel()
	pause := firstPause
	for {
		located, err := w.addBlock(ctx)
		if err != nil {
			return err
		}
		// The connection lives as long as the file, not as long as this budget.
		b, bad, err := w.f.openBlockWriter(w.ctx, pipeline{located: located, stage: hdfspb.OpWriteBlockProto_PIPELINE_SETUP_CREATE}, w.blockSize)
		if err == nil {
			w.block = b
			return nil
		}
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		w.f.log.Warn().Str("path", w.path).Err(err).Msg("data node refused a block, asking for another one")
		w.abandon(ctx, located, bad)
		if hopeless(err) {
			return err
		}
		if serr := ipc.Sleep(ctx, pause); serr != nil {
			return fmt.Errorf("%w (%w)", err, serr)
		}
		pause = min(2*pause, longPause)
	}
}

// addBlock is like call, but forgets excluded nodes when no other is left: the only DataNode may have been restarted.
func (w *writer) addBlock(ctx context.Context) (*hdfspb.LocatedBlockProto, error) {
	start := time.Now()
	pause := firstPause
	for {
		req := &hdfspb.AddBlockRequestProto{
			Src: proto.String(w.name), ClientName: proto.String(w.f.clientName), Previous: w.prev, ExcludeNodes: w.exclude, FileId: proto.Uint64(w.fileID),
		}
		resp := &hdfspb.AddBlockResponseProto{}
		err := w.f.once(ctx, "addBlock", req, resp)
		if err == nil {
			return resp.GetBlock(), nil
		}
		if !passes(err) {
			return nil, err
		}
		if noTargets(err) {
			w.exclude = nil
		}
		if serr := ipc.Sleep(ctx, pause); serr != nil {
			return nil, fmt.Errorf("%w (waited %s: %w)", err, time.Since(start).Round(time.Millisecond), serr)
		}
		pause = min(2*pause, longPause)
	}
}

// abandon gives a block back and remembers the node to avoid. A failure does not matter: the next addBlock replaces the block.
func (w *writer) abandon(ctx context.Context, located *hdfspb.LocatedBlockProto, bad int) {
	if locs := located.GetLocs(); bad >= 0 && bad < len(locs) {
		w.exclude = append(w.exclude, locs[bad])
	}
	req := &hdfspb.AbandonBlockRequestProto{
		B: located.GetB(), Src: proto.String(w.name), Holder: proto.String(w.f.clientName), FileId: proto.Uint64(w.fileID),
	}
	if err := w.f.call(ctx, "abandonBlock", req, &hdfspb.AbandonBlockResponseProto{}); err != nil {
		w.f.log.Debug().Str("path", w.path).Err(err).Msg("block was not given back")
	}
}

// endBlock sends what waits and makes sure that the DataNodes have the whole block.
func (w *writer) endBlock() error {
	if err := w.flush(); err != nil {
		return err
	}
	if w.block == nil {
		return nil
	}
	for closed := false; !closed; {
		err := w.block.finish()
		if err == nil {
			break
		}
		if closed, err = w.repair(err); err != nil {
			return err
		}
	}
	w.prev = proto.Clone(w.block.located.GetB()).(*hdfspb.ExtendedBlockProto)
	w.prev.NumBytes = proto.Uint64(uint64(w.block.offset)) //nolint:gosec // positive
	w.block, w.kept, w.tooMuch = nil, w.kept[:0], false
	return nil
}

// Close implements fs.Writer: the content is on the DataNodes and known to the NameNode when it returns nil. A file whose Close fails is
// removed as far as the cluster lets us.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.check()
	if err == nil {
		err = w.finish()
	}
	switch {
	case err == nil:
		w.done = iofs.ErrClosed
		w.release()
		return nil
	case errors.Is(w.done, iofs.ErrClosed) || errors.Is(w.done, fs.ErrAborted):
		return fail("close", w.path, err)
	}
	if aerr := w.giveUp(); aerr != nil {
		w.f.log.Warn().Str("path", w.name).Err(aerr).Msg("unfinished file was not removed")
	}
	return fail("close", w.path, err)
}

func (w *writer) finish() error {
	if err := w.endBlock(); err != nil {
		return err
	}
	if err := w.complete(); err != nil {
		return err
	}
	if w.name == w.path {
		return nil
	}
	return w.f.rename(w.ctx, w.name, w.path)
}

// complete closes the file at the NameNode, which waits for the reports of the DataNodes.
func (w *writer) complete() error {
	ctx, cancel := w.f.budget(w.ctx)
	defer cancel()
	req := &hdfspb.CompleteRequestProto{
		Src: proto.String(w.name), ClientName: proto.String(w.f.clientName), Last: w.prev, FileId: proto.Uint64(w.fileID),
	}
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		resp := &hdfspb.CompleteResponseProto{}
		if err := w.f.call(ctx, "complete", req, resp); err != nil {
			return err
		}
		if resp.GetResult() {
			return nil
		}
		if err := ipc.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("the last block has not been reported by a data node: %w", errors.Join(fs.ErrUnavailable, err))
		}
	}
}

// Abort implements fs.Writer.
func (w *writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(w.done, iofs.ErrClosed) || errors.Is(w.done, fs.ErrAborted) {
		return nil
	}
	if err := w.giveUp(); err != nil {
		return fail("abort", w.path, err)
	}
	return nil
}

// giveUp removes what was written, even when the context of the file has ended.
func (w *writer) giveUp() error {
	if w.block != nil {
		w.block.close()
		w.block = nil
	}
	w.done = fs.ErrAborted
	w.release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	return w.f.remove(ctx, w.name, false)
}

func (w *writer) release() {
	w.buf, w.kept = nil, nil
	w.f.dropWriter(w)
}

// heartbeat is called by the renewer. A writer that is busy needs none.
func (w *writer) heartbeat() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.block != nil && w.done == nil {
		w.block.heartbeat()
	}
}
