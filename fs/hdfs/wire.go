package hdfs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

// The data transfer protocol.
//
//	operation: version int16 = 28 | opcode uint8 | varint length | Op...Proto
//	answer:    varint length | BlockOpResponseProto
//	packet:    uint32 4+len(checksums)+len(data) | uint16 len(header) | PacketHeaderProto | checksums (4 bytes a chunk) | data
//	ack:       varint length | PipelineAckProto
//
// Source: hadoop-hdfs-client 3.4.2 Sender, PacketHeader, PacketReceiver.
const (
	transferVersion = 28
	opWriteBlock    = 80
	opReadBlock     = 81

	chunkSize     = 512
	packetData    = 128 * chunkSize // bytes of data in a full packet
	maxPacket     = 16 << 20        // PacketReceiver.MAX_PACKET_SIZE
	maxAnswer     = 1 << 20         // far above any operation's answer or ack
	heartbeatSeq  = -1
	maxHeaderSize = 1 << 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errMalformed = errors.New("malformed data from the data node")

// encodeOp is the beginning of a connection's only operation.
func encodeOp(op byte, m proto.Message) ([]byte, error) {
	b := binary.BigEndian.AppendUint16(nil, transferVersion)
	b = append(b, op)
	b = protowire.AppendVarint(b, uint64(proto.Size(m)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// readDelimited reads one message with its length before it.
func readDelimited(r *bufio.Reader, m proto.Message) error {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return unexpected(err)
	}
	if n > maxAnswer {
		return fmt.Errorf("%w: an answer of %d bytes", errMalformed, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return unexpected(err)
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// unexpected names an end of the stream in the middle of something.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendPacket appends the bytes of a packet up to its data, which follows.
func appendPacket(b []byte, seq, offset int64, last bool, data []byte) ([]byte, error) {
	chunks := (len(data) + chunkSize - 1) / chunkSize
	b = binary.BigEndian.AppendUint32(b, uint32(4+4*chunks+len(data))) //nolint:gosec // at most packetData
	at := len(b)
	b = append(b, 0, 0)
	head := &hdfspb.PacketHeaderProto{
		OffsetInBlock: proto.Int64(offset), Seqno: proto.Int64(seq), LastPacketInBlock: proto.Bool(last), DataLen: proto.Int32(int32(len(data))), //nolint:gosec // as above
	}
	b, err := proto.MarshalOptions{}.MarshalAppend(b, head)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2)) //nolint:gosec // 25 bytes
	for i := 0; i < len(data); i += chunkSize {
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(data[i:min(i+chunkSize, len(data))], castagnoli))
	}
	return b, nil
}

// packet is one that was read; its slices are valid until the next read.
type packet struct {
	head      hdfspb.PacketHeaderProto
	checksums []byte
	data      []byte
}

// packetReader reads the packets of one block.
type packetReader struct {
	r   *bufio.Reader
	buf []byte
}

func (pr *packetReader) next(p *packet) error {
	var fixed [6]byte
	if _, err := io.ReadFull(pr.r, fixed[:]); err != nil {
		return unexpected(err)
	}
	body := int64(binary.BigEndian.Uint32(fixed[:4])) - 4
	head := int64(binary.BigEndian.Uint16(fixed[4:]))
	if body < 0 || body > maxPacket || head > maxHeaderSize {
		return fmt.Errorf("%w: a packet of %d and %d bytes", errMalformed, head, body)
	}
	b := pr.buf[:0]
	for need := int(head + body); len(b) < need; { // room is made as data comes, not as a length claims
		step := min(need-len(b), 256<<10)
		b = slices.Grow(b, step)
		if _, err := io.ReadFull(pr.r, b[len(b):len(b)+step]); err != nil {
			return unexpected(err)
		}
		b = b[:len(b)+step]
	}
	pr.buf = b
	proto.Reset(&p.head)
	if err := proto.Unmarshal(b[:head], &p.head); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	n := int64(p.head.GetDataLen())
	if n < 0 || n > body {
		return fmt.Errorf("%w: %d bytes of data in a packet of %d", errMalformed, n, body)
	}
	p.checksums, p.data = b[head:head+body-n], b[head+body-n:]
	return nil
}

// checksum is how a block's chunks are checked.
type checksum struct {
	table *crc32.Table // nil: there are none
	chunk int
}

func newChecksum(c *hdfspb.ChecksumProto) (checksum, error) {
	out := checksum{chunk: int(c.GetBytesPerChecksum())}
	switch c.GetType() {
	case hdfspb.ChecksumTypeProto_CHECKSUM_NULL:
		return out, nil
	case hdfspb.ChecksumTypeProto_CHECKSUM_CRC32:
		out.table = crc32.IEEETable
	case hdfspb.ChecksumTypeProto_CHECKSUM_CRC32C:
		out.table = castagnoli
	default:
		return out, fmt.Errorf("%w: checksum type %v", errMalformed, c.GetType())
	}
	if out.chunk <= 0 || out.chunk > maxPacket {
		return out, fmt.Errorf("%w: %d bytes per checksum", errMalformed, out.chunk)
	}
	return out, nil
}

// errChecksum says that data and checksum of a chunk differ.
var errChecksum = errors.New("checksum mismatch")

func (c checksum) verify(p *packet) error {
	if c.table == nil || len(p.data) == 0 {
		return nil
	}
	chunks := (len(p.data) + c.chunk - 1) / c.chunk
	if len(p.checksums) != 4*chunks {
		return fmt.Errorf("%w: %d bytes of checksums for %d chunks", errMalformed, len(p.checksums), chunks)
	}
	for i := range chunks {
		part := p.data[i*c.chunk : min((i+1)*c.chunk, len(p.data))]
		if crc32.Checksum(part, c.table) != binary.BigEndian.Uint32(p.checksums[4*i:]) {
			return fmt.Errorf("%w at offset %d of the block", errChecksum, p.head.GetOffsetInBlock()+int64(i*c.chunk))
		}
	}
	return nil
}
