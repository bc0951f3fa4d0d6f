package hdfs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

const (
	maxInFlight = 64 // packets sent and not acknowledged, 4 MiB
	neverLast   = -2
)

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
}

// openBlockWriter connects to the first node of the located block. On failure the index of the node to avoid comes with the error.
func (f *FileSystem) openBlockWriter(ctx context.Context, located *hdfspb.LocatedBlockProto, blockSize int64) (*blockWriter, int, error) {
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
		Targets: locs[1:], Stage: hdfspb.OpWriteBlockProto_PIPELINE_SETUP_CREATE.Enum(), PipelineSize: proto.Uint32(uint32(len(locs))), //nolint:gosec // small
		MinBytesRcvd: proto.Uint64(0), MaxBytesRcvd: proto.Uint64(0), LatestGenerationStamp: proto.Uint64(0),
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
		return nil, f.badLink(locs, resp), err
	}
	b := &blockWriter{t: t, located: located, slots: make(chan struct{}, maxInFlight), acked: make(chan struct{}), bad: -1}
	b.last.Store(neverLast)
	f.wg.Go(b.readAcks)
	return b, -1, nil
}

// badLink finds the node that the pipeline could not be continued to; the first one unless the answer names another.
func (f *FileSystem) badLink(locs []*hdfspb.DatanodeInfoProto, resp *hdfspb.BlockOpResponseProto) int {
	bad := resp.GetFirstBadLink()
	for i, d := range locs {
		id := d.GetId()
		if bad != "" && (bad == net.JoinHostPort(id.GetIpAddr(), fmt.Sprint(id.GetXferPort())) || bad == net.JoinHostPort(id.GetHostName(), fmt.Sprint(id.GetXferPort()))) {
			return i
		}
	}
	return 0
}

// send puts one packet on the way. Data is not kept.
func (b *blockWriter) send(data []byte, last bool) error {
	select {
	case b.slots <- struct{}{}:
	case <-b.acked:
		return b.over(b.err) // acknowledgements end early for a reason only
	}
	if last {
		b.last.Store(b.seq)
	}
	if err := b.put(b.seq, last, data); err != nil {
		return b.over(err)
	}
	b.seq++
	b.offset += int64(len(data))
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
	parts := net.Buffers{b.head, data}
	_, err = parts.WriteTo(b.t.nc)
	return err
}

// over ends the connection and says why, as the acknowledgements saw it when they know more.
func (b *blockWriter) over(err error) error {
	b.close()
	if b.err != nil {
		var dn *datanodeError
		if errors.As(b.err, &dn) && dn.status != hdfspb.Status_SUCCESS {
			return b.err
		}
	}
	return b.t.fail(err)
}

// heartbeat keeps the DataNode from giving up an idle block. Called with the writer's lock.
func (b *blockWriter) heartbeat() { _ = b.put(heartbeatSeq, false, nil) }

// finish sends the final packet and waits until every node of the pipeline has everything.
func (b *blockWriter) finish() error {
	if err := b.send(nil, true); err != nil {
		return err
	}
	<-b.acked // bounded: touch in send, the context, or an answer ends it
	if b.err != nil {
		return b.over(b.err)
	}
	b.close()
	return nil
}

// close ends the connection and waits for the goroutine.
func (b *blockWriter) close() {
	if !b.closed {
		b.closed = true
		b.t.close()
	}
	<-b.acked
}

func (b *blockWriter) readAcks() {
	defer close(b.acked)
	for want := int64(0); ; {
		ack := &hdfspb.PipelineAckProto{}
		if err := readDelimited(b.t.r, ack); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && len(b.slots) == 0 { // nothing was due
				b.t.touch()
				continue
			}
			b.err, b.bad = b.t.fail(err), 0
			return
		}
		for i, s := range ack.GetReply() {
			if s != hdfspb.Status_SUCCESS {
				b.err, b.bad = statusError(b.t.addr, s, fmt.Sprintf("node %d of the pipeline", i+1)), i
				return
			}
		}
		if ack.GetSeqno() == heartbeatSeq {
			continue
		}
		if ack.GetSeqno() != want {
			b.err, b.bad = b.t.fail(fmt.Errorf("%w: acknowledged packet %d, expected %d", errMalformed, ack.GetSeqno(), want)), 0
			return
		}
		<-b.slots
		if want == b.last.Load() {
			return
		}
		want++
	}
}
