package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// reader is an open file: Read goes on where it was, ReadAt is independent and may be called from several goroutines.
type reader struct {
	f    *FileSystem
	ctx  context.Context //nolint:containedctx // it is the life of the open file
	path string
	size int64

	blockMu sync.Mutex
	located []*hdfspb.LocatedBlockProto // replaced as a whole

	mu     sync.Mutex
	closed bool
	off    int64
	stream *blockReader // at off, or nil
}

func newReader(ctx context.Context, f *FileSystem, path string, l *hdfspb.LocatedBlocksProto) *reader {
	return &reader{f: f, ctx: ctx, path: path, size: int64(l.GetFileLength()), located: l.GetBlocks()} //nolint:gosec // fits
}

func (r *reader) check() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.f.ctx.Err() != nil {
		return iofs.ErrClosed
	}
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fail("read", r.path, iofs.ErrClosed)
	}
	if err := r.check(); err != nil {
		return 0, fail("read", r.path, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.off >= r.size {
		return 0, io.EOF
	}
	var n int
	err := r.retry(r.off, func(located *hdfspb.LocatedBlockProto, node *hdfspb.DatanodeInfoProto) error {
		if r.stream == nil {
			s, err := r.f.openBlockReader(r.ctx, located, node, r.off-blockStart(located), blockSize(located)-(r.off-blockStart(located)))
			if err != nil {
				return err
			}
			r.stream = s
		}
		var err error
		if n, err = r.stream.read(p); err != nil {
			r.endStream()
		}
		return err
	})
	if err != nil {
		return 0, fail("read", r.path, err)
	}
	r.off += int64(n)
	if r.stream.left == 0 {
		r.endStream()
	}
	return n, nil
}

func (r *reader) endStream() {
	if r.stream != nil {
		r.stream.close()
		r.stream = nil
	}
}

// ReadAt implements io.ReaderAt. It asks DataNodes for exactly the bytes wanted.
func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fail("read", r.path, iofs.ErrInvalid)
	}
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return 0, fail("read", r.path, iofs.ErrClosed)
	}
	if err := r.check(); err != nil {
		return 0, fail("read", r.path, err)
	}
	if off >= r.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.size-off)]
	n := 0
	for n < len(want) {
		got := 0
		err := r.retry(off+int64(n), func(located *hdfspb.LocatedBlockProto, node *hdfspb.DatanodeInfoProto) error {
			in := off + int64(n) - blockStart(located)
			part := want[n:][:min(int64(len(want)-n), blockSize(located)-in)]
			s, err := r.f.openBlockReader(r.ctx, located, node, in, int64(len(part)))
			if err != nil {
				return err
			}
			defer s.close()
			got = len(part)
			return s.readFull(part)
		})
		if err != nil {
			return n, fail("read", r.path, err)
		}
		n += got
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fail("close", r.path, iofs.ErrClosed)
	}
	r.closed = true
	r.endStream()
	return nil
}

func blockStart(l *hdfspb.LocatedBlockProto) int64 { return int64(l.GetOffset()) }          //nolint:gosec // fits
func blockSize(l *hdfspb.LocatedBlockProto) int64  { return int64(l.GetB().GetNumBytes()) } //nolint:gosec // fits

// find returns the block that holds off.
func (r *reader) find(off int64) (*hdfspb.LocatedBlockProto, error) {
	r.blockMu.Lock()
	defer r.blockMu.Unlock()
	lo, hi := 0, len(r.located)
	for lo < hi {
		mid := (lo + hi) / 2
		if b := r.located[mid]; off < blockStart(b) {
			hi = mid
		} else if off >= blockStart(b)+blockSize(b) {
			lo = mid + 1
		} else {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no block for offset %d of %d", off, r.size)
}

// refresh asks for the locations again: nodes have died, tokens have expired.
func (r *reader) refresh(ctx context.Context) error {
	l, err := r.f.blocks(ctx, r.path)
	if err != nil {
		return err
	}
	if int64(l.GetFileLength()) < r.size { //nolint:gosec // fits
		return fmt.Errorf("the file was replaced while it was read: %w", iofs.ErrNotExist)
	}
	r.blockMu.Lock()
	defer r.blockMu.Unlock()
	r.located = l.GetBlocks()
	return nil
}

// retry runs op on the replicas of the block at off until one serves. When none does, it asks for the locations again, until the budget
// is used up. A block token that has ended is replaced at once, the first time.
func (r *reader) retry(off int64, op func(*hdfspb.LocatedBlockProto, *hdfspb.DatanodeInfoProto) error) error {
	var ctx context.Context // made at the first failure: most reads need none
	cancel := func() {}
	defer func() { cancel() }()
	pause := 20 * time.Millisecond
	corrupt, renewed := 0, false
next:
	for {
		located, err := r.find(off)
		if err != nil {
			return err
		}
		err = errors.New("the name node knows no data node that has the block")
		if located.GetCorrupt() {
			err = errors.New("all replicas of the block are corrupt")
		}
		var last error = &datanodeError{addr: "(none)", err: err}
		for _, node := range located.GetLocs() {
			if last = op(located, node); last == nil {
				return nil
			}
			if err := r.check(); err != nil {
				return err
			}
			if !renewed && errors.Is(last, sasl.ErrToken) {
				renewed = true
				if err := r.refresh(r.ctx); err != nil {
					return err
				}
				continue next
			}
			if hopeless(last) {
				return last
			}
			if errors.Is(last, errChecksum) {
				corrupt++
			}
			r.f.log.Warn().Str("path", r.path).Err(last).Msg("data node did not serve a block, trying another one")
		}
		if n := len(located.GetLocs()); n > 0 && corrupt >= 2*n {
			return last // asked twice; waiting does not heal it
		}
		if ctx == nil {
			ctx, cancel = r.f.budget(r.ctx) //nolint:fatcontext // once, at the first failure
		}
		if err := ipc.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%w (%w)", last, err)
		}
		pause = min(2*pause, longPause)
		if err := r.refresh(ctx); err != nil {
			return err
		}
	}
}

// blockReader reads a range of one block from one DataNode.
type blockReader struct {
	t       *transfer
	packets packetReader
	sum     checksum
	p       packet
	rest    []byte // of p.data, wanted and not yet returned
	pos     int64  // in the block, of the next byte after rest
	left    int64  // wanted bytes, those in rest included
}

func (f *FileSystem) openBlockReader(ctx context.Context, located *hdfspb.LocatedBlockProto, node *hdfspb.DatanodeInfoProto, off, n int64) (*blockReader, error) {
	op := &hdfspb.OpReadBlockProto{
		Header: &hdfspb.ClientOperationHeaderProto{
			BaseHeader: &hdfspb.BaseHeaderProto{Block: located.GetB(), Token: located.GetBlockToken()}, ClientName: proto.String(f.clientName),
		},
		Offset: proto.Uint64(uint64(off)), Len: proto.Uint64(uint64(n)), //nolint:gosec // positive
	}
	t, resp, err := f.dialDatanode(ctx, node, located.GetBlockToken(), opReadBlock, op)
	if err != nil {
		return nil, err
	}
	sum, err := newChecksum(resp.GetReadOpChecksumInfo().GetChecksum())
	start := int64(resp.GetReadOpChecksumInfo().GetChunkOffset()) //nolint:gosec // checked next
	if err == nil && (start < 0 || start > off) {
		err = fmt.Errorf("%w: data begins at %d, asked for %d", errMalformed, start, off)
	}
	if err != nil {
		t.close()
		return nil, t.fail(err)
	}
	return &blockReader{t: t, packets: packetReader{r: t.r}, sum: sum, pos: off, left: n}, nil
}

// read returns some bytes; there must be some left.
func (b *blockReader) read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if err := b.fill(); err != nil {
			return 0, b.t.fail(err)
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	b.left -= int64(n)
	return n, nil
}

func (b *blockReader) readFull(p []byte) error {
	for len(p) > 0 {
		n, err := b.read(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// fill reads the next packet. DataNodes begin at a chunk's border, before the wanted range, and end at one, behind it.
func (b *blockReader) fill() error {
	b.t.touch()
	if err := b.packets.next(&b.p); err != nil {
		return err
	}
	if err := b.sum.verify(&b.p); err != nil {
		return err
	}
	if b.p.head.GetLastPacketInBlock() {
		return io.ErrUnexpectedEOF
	}
	start := b.p.head.GetOffsetInBlock()
	skip := b.pos - start
	if skip < 0 || start < 0 {
		return fmt.Errorf("%w: a packet for offset %d, expected %d", errMalformed, start, b.pos)
	}
	if skip >= int64(len(b.p.data)) {
		return nil
	}
	b.rest = b.p.data[skip:]
	b.rest = b.rest[:min(int64(len(b.rest)), b.left)]
	b.pos += int64(len(b.rest))
	return nil
}

// close ends the connection. The status that the DataNode would like to hear is only sent after a whole range.
func (b *blockReader) close() {
	if b.left == 0 {
		status := &hdfspb.ClientReadStatusProto{Status: hdfspb.Status_CHECKSUM_OK.Enum()}
		if raw, err := proto.Marshal(status); err == nil {
			_, _ = b.t.nc.Write(append([]byte{byte(len(raw))}, raw...))
		}
	}
	b.t.close()
}
