package hdfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

func crc32c() checksum { return checksum{table: castagnoli, chunk: chunkSize} }

func TestPacketsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 3*chunkSize).Draw(t, "data")
		seq, off := rapid.Int64().Draw(t, "seq"), rapid.Int64().Draw(t, "offset")
		last := rapid.Bool().Draw(t, "last")
		raw, err := appendPacket(nil, seq, off, last, data)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, data...)
		pr := packetReader{r: bufio.NewReader(bytes.NewReader(raw))}
		var p packet
		if err := pr.next(&p); err != nil {
			t.Fatal(err)
		}
		if p.head.GetSeqno() != seq || p.head.GetOffsetInBlock() != off || p.head.GetLastPacketInBlock() != last || !bytes.Equal(p.data, data) {
			t.Fatalf("read %v with %d bytes", &p.head, len(p.data))
		}
		if err := crc32c().verify(&p); err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			return
		}
		// One turned bit is found, in the data as in the checksums.
		at := rapid.IntRange(0, len(p.data)+len(p.checksums)-1).Draw(t, "at")
		raw[len(raw)-len(p.data)-len(p.checksums)+at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		pr = packetReader{r: bufio.NewReader(bytes.NewReader(raw))}
		if err := pr.next(&p); err != nil {
			t.Fatal(err)
		}
		if err := crc32c().verify(&p); !errors.Is(err, errChecksum) {
			t.Fatalf("a turned bit at %d of %d: %v", at, len(data), err)
		}
	})
}

func TestATornPacketIsAnUnexpectedEnd(t *testing.T) {
	raw, err := appendPacket(nil, 1, 0, false, make([]byte, 1000))
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, make([]byte, 1000)...)
	for n := range raw {
		pr := packetReader{r: bufio.NewReader(bytes.NewReader(raw[:n]))}
		if err := pr.next(&packet{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
}

func FuzzPacket(f *testing.F) {
	raw, err := appendPacket(nil, 7, 512, false, make([]byte, 600))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(raw, make([]byte, 600)...), int64(chunkSize))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0}, int64(1))
	f.Add([]byte{0, 0, 0, 4, 0, 0}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, chunk int64) {
		pr := packetReader{r: bufio.NewReader(bytes.NewReader(b))}
		c, err := newChecksum(&hdfspb.ChecksumProto{Type: hdfspb.ChecksumTypeProto_CHECKSUM_CRC32C.Enum(), BytesPerChecksum: proto.Uint32(uint32(chunk))})
		for {
			var p packet
			if pr.next(&p) != nil {
				break
			}
			if len(p.data)+len(p.checksums) > len(b) {
				t.Fatalf("%d bytes out of %d", len(p.data)+len(p.checksums), len(b))
			}
			if err == nil {
				_ = c.verify(&p)
			}
		}
	})
}

func FuzzDelimited(f *testing.F) {
	m, err := proto.Marshal(&hdfspb.PipelineAckProto{Seqno: proto.Int64(3), Reply: []hdfspb.Status{hdfspb.Status_SUCCESS}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{byte(len(m))}, m...))
	f.Add(binary.AppendUvarint(nil, 1<<40))
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := bufio.NewReader(bytes.NewReader(b))
		for readDelimited(r, &hdfspb.PipelineAckProto{}) == nil {
		}
		r = bufio.NewReader(bytes.NewReader(b))
		for readDelimited(r, &hdfspb.BlockOpResponseProto{}) == nil {
		}
	})
}
