package hdfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
)

const (
	maxInFlight = 64 // packets sent and not acknowledged, 4 MiB
	neverLast   = -2
)

// pipeline says how a block is begun, or continued after a DataNode was lost.
type pipeline struct {
	located  *hdfspb.LocatedBlockProto // its nodes; the generation stamp that they know
	stage    hdfspb.OpWriteBlockProto_BlockConstructionStage
	newStamp uint64 // the generation stamp that they get, when the block is continued
	acked    int64  // bytes that every node has
	sent     int64  // bytes that a node may have
}

// blockWriter sends one block down a pipeline of DataNodes. One goroutine sends, its own goroutine reads acknowledgements and ends with
// the connection.
type blockWriter struct {
	t       *transfer
	located *hdfspb.LocatedBlockProto
	seq     int64
	offset  int64 // bytes sent
	head    []byte
	closed  bool

	slots chan struct{} // one for each packet in flight
	last  atomic.Int64  // sequence number of the final packet
	acked chan struct{} // closed when the acknowledgements have ended
	err   error         // why, set before; nil after the final packet
	bad   int           // index of the node that failed, set with err

	mu      sync.Mutex
	drained sync.Cond // on mu: something was acknowledged or the acknowledgements have ended
	keep    bool      // unacknowledged packets are kept for another pipeline
	flight  []inFlight
	whole   int64 // bytes that every node has acknowledged
	ended   bool
}

type inFlight struct {
	n    int    // bytes of data
	data []byte // a copy, with keep
}

var packetPool = sync.Pool{New: func() any { b := make([]byte, 0, packetData); return &b }}

// openBlockWriter connects to the first node of the pipeline. On failure the index of the node to avoid comes with the error.
func (f *FileSystem) openBlockWriter(ctx context.Context, p pipeline, blockSize int64) (*blockWriter, int, error) {
	located := p.located
	locs := located.GetLocs()
	if len(locs) == 0 {
		return nil, -1, errors.New("the name node gave a block without data nodes")
	}
	block := proto.Clone(located.GetB()).(*hdfspb.ExtendedBlockProto)
	block.NumBytes = proto.Uint64(uint64(blockSize)) //nolint:gosec // positive; so that the data node picks a disk with room
	op := &hdfspb.OpWriteBlockProto{
		Header: &hdfspb.ClientOperationHeaderProto{
			BaseHeader: &hdfspb.BaseHeaderProto{Block: block, Token: located.GetBlockToken()}, ClientName: proto.String(f.clientName),
		},
		Targets: locs[1:], Stage: p.stage.Enum(), PipelineSize: proto.Uint32(uint32(len(locs))), //nolint:gosec // small
		MinBytesRcvd: proto.Uint64(uint64(p.acked)), MaxBytesRcvd: proto.Uint64(uint64(p.sent)), LatestGenerationStamp: proto.Uint64(p.newStamp), //nolint:gosec // positive
		RequestedChecksum: &hdfspb.ChecksumProto{Type: hdfspb.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(), BytesPerChecksum: proto.Uint32(chunkSize)},
	}
	if st := located.GetStorageTypes(); len(st) == len(locs) {
		op.StorageType, op.TargetStorageTypes = st[0].Enum(), st[1:]
	}
	if ids := located.GetStorageIDs(); len(ids) == len(locs) {
		op.StorageId, op.TargetStorageIds = proto.String(ids[0]), ids[1:]
	}
	t, resp, err := f.dialDatanode(ctx, locs[0], located.GetBlockToken(), opWriteBlock, op)
	if err != nil {
		return nil, badLink(locs, resp), err
	}
	b := &blockWriter{
		t: t, located: located, slots: make(chan struct{}, maxInFlight), acked: make(chan struct{}), bad: -1,
		offset: p.acked, whole: p.acked, keep: len(locs) > 1,
	}
	b.drained.L = &b.mu
	b.last.Store(neverLast)
	f.wg.Go(b.readAcks)
	return b, -1, nil
}

// badLink finds the node that the pipeline could not be continued to; the first one unless the answer names another.
func badLink(locs []*hdfspb.DatanodeInfoProto, resp *hdfspb.BlockOpResponseProto) int {
	bad := resp.GetFirstBadLink()
	for i, d := range locs {
		port := strconv.FormatUint(uint64(d.GetId().GetXferPort()), 10)
		if bad != "" && (bad == net.JoinHostPort(d.GetId().GetIpAddr(), port) || bad == net.JoinHostPort(d.GetId().GetHostName(), port)) {
			return i
		}
	}
	return 0
}

// send puts one packet on the way. The data may be changed when it returns.
func (b *blockWriter) send(data []byte, last bool) error {
	select {
	case b.slots <- struct{}{}:
	case <-b.acked:
	}
	p := inFlight{n: len(data)}
	b.mu.Lock()
	if b.keep && len(data) > 0 {
		buf := packetPool.Get().(*[]byte)
		p.data = append((*buf)[:0], data...)
	}
	b.flight = append(b.flight, p)
	b.mu.Unlock()
	if last {
		b.last.Store(b.seq)
	}
	err := b.put(b.seq, last, data)
	b.seq++
	b.offset += int64(len(data)) // whether it arrived or not: the packet is in flight now
	select {
	case <-b.acked:
		if b.err != nil {
			return b.over(b.err)
		}
	default:
	}
	if err != nil {
		return b.over(err)
	}
	return nil
}

func (b *blockWriter) put(seq int64, last bool, data []byte) error {
	var err error
	if b.head, err = appendPacket(b.head[:0], seq, b.offset, last, data); err != nil {
		return err
	}
	b.t.touch()
	if len(data) < packetData/8 { // one write, one segment
		b.head = append(b.head, data...)
		_, err = b.t.nc.Write(b.head)
		return err
	}
	return sasl.WriteBoth(b.t.nc, b.head, data)
}

// over ends the connection and says why, as the acknowledgements saw it when they know more.
func (b *blockWriter) over(err error) error {
	b.close()
	var dn *datanodeError
	if errors.As(b.err, &dn) && dn.status != hdfspb.Status_SUCCESS {
		return b.err
	}
	if b.bad < 0 {
		b.bad = 0
	}
	return b.t.fail(err)
}

// heartbeat keeps the DataNode from giving up an idle block. Called with the writer's lock.
func (b *blockWriter) heartbeat() { _ = b.put(heartbeatSeq, false, nil) }

// finish waits until every node has all data, then sends the final packet and waits until every node has closed the block. Two steps, so
// that after a failure it is known whether a node may have closed it: no node has, unless allAcked.
func (b *blockWriter) finish() error {
	b.mu.Lock()
	for len(b.flight) > 0 && !b.ended {
		b.drained.Wait() // bounded: touch in send, the context, or an answer ends it
	}
	b.mu.Unlock()
	if err := b.send(nil, true); err != nil {
		return err
	}
	<-b.acked // bounded as above
	if b.err != nil {
		return b.over(b.err)
	}
	b.close()
	return nil
}

// allAcked says that every node has all data and was told to close the block. For closed connections.
func (b *blockWriter) allAcked() bool { return b.last.Load() != neverLast && b.whole == b.offset }

// close ends the connection and waits for the goroutine.
func (b *blockWriter) close() {
	if !b.closed {
		b.closed = true
		b.t.close()
	}
	<-b.acked
}

// unacked returns the kept packets, for closed connections; recycle gives them back.
func (b *blockWriter) unacked() []inFlight { return b.flight }

func recycle(p inFlight) {
	if p.data != nil {
		buf := p.data[:0]
		packetPool.Put(&buf)
	}
}

func (b *blockWriter) readAcks() {
	b.err, b.bad = b.acks()
	b.mu.Lock()
	b.ended = true
	b.drained.Broadcast()
	b.mu.Unlock()
	close(b.acked)
}

// acks reads until the final packet is acknowledged; otherwise it returns what happened and to which node.
func (b *blockWriter) acks() (error, int) { //nolint:revive,staticcheck // the node belongs to the error
	for want := int64(0); ; {
		ack := &hdfspb.PipelineAckProto{}
		if err := readDelimited(b.t.r, ack); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && len(b.slots) == 0 { // nothing was due
				b.t.touch()
				continue
			}
			return b.t.fail(err), 0
		}
		for i, s := range ack.GetReply() {
			if s != hdfspb.Status_SUCCESS {
				return statusError(b.t.addr, s, fmt.Sprintf("node %d of the pipeline", i+1)), i
			}
		}
		if ack.GetSeqno() == heartbeatSeq {
			continue
		}
		if ack.GetSeqno() != want {
			return b.t.fail(fmt.Errorf("%w: acknowledged packet %d, expected %d", errMalformed, ack.GetSeqno(), want)), 0
		}
		if !b.pop() {
			return b.t.fail(fmt.Errorf("%w: acknowledged packet %d, which was not sent", errMalformed, want)), 0
		}
		<-b.slots
		if want == b.last.Load() {
			return nil, -1
		}
		want++
	}
}

// pop takes the oldest packet off those in flight.
func (b *blockWriter) pop() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.flight) == 0 {
		return false
	}
	p := b.flight[0]
	b.flight = b.flight[1:]
	b.whole += int64(p.n)
	recycle(p)
	if len(b.flight) == 0 {
		b.flight = nil
	}
	b.drained.Signal()
	return true
}
