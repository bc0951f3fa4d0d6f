package sasl

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
)

// server is the DataNode's half, after SaslDataTransferServer.
type server struct {
	offer    []Level
	aes      bool   // takes AES/CTR when the client offers it
	user     string // who may come, with which password
	password []byte
	refuse   *message // is the second answer, when it is set
}

func (s *server) handshake(nc net.Conn) (net.Conn, error) {
	var head [4]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, err
	}
	if binary.BigEndian.Uint32(head[:]) != magic {
		return nil, fmt.Errorf("the magic number is %x", head)
	}
	if _, err := readMessage(nc); err != nil {
		return nil, err
	}
	var qops []digestmd5.QOP
	for _, l := range s.offer {
		qops = append(qops, l.QOP())
	}
	digest := digestmd5.NewServer("0", digestURI, qops...)
	if err := s.send(nc, &message{Payload: digest.Challenge()}); err != nil {
		return nil, err
	}
	m, err := readMessage(nc)
	if err != nil {
		return nil, err
	}
	_, proof, err := digest.Verify(m.GetPayload(), func(user string) ([]byte, error) {
		if user != s.user {
			return nil, errors.New("unknown user " + user)
		}
		return s.password, nil
	})
	if err != nil {
		return nil, err
	}
	if s.refuse != nil {
		_, err := nc.Write(delimited(s.refuse))
		return nil, errors.Join(err, errors.New("refused"))
	}
	answer := &message{Payload: proof}
	w := digest.Wrapper()
	var out net.Conn = nc
	switch {
	case w == nil:
	case len(m.GetCipherOption()) > 0 && s.aes:
		var option *hdfspb.CipherOptionProto
		if option, out, err = s.ctr(nc, w); err != nil {
			return nil, err
		}
		answer.CipherOption = append(answer.CipherOption, option)
	default:
		out = newSealed(nc, w)
	}
	return out, s.send(nc, answer)
}

// ctr makes the keys of an AES stream and wraps them for the client.
func (s *server) ctr(nc net.Conn, w Layer) (*hdfspb.CipherOptionProto, net.Conn, error) {
	var part [4][]byte // inKey, inIv, outKey, outIv
	for i := range part {
		part[i] = make([]byte, aes.BlockSize)
		_, _ = rand.Read(part[i])
	}
	c := &ctr{Conn: nc}
	for i, to := range []*cipher.Stream{&c.in, &c.out} {
		block, err := aes.NewCipher(part[2*i])
		if err != nil {
			return nil, nil, err
		}
		*to = cipher.NewCTR(block, part[2*i+1])
		if part[2*i], err = w.Wrap(part[2*i]); err != nil {
			return nil, nil, err
		}
	}
	return &hdfspb.CipherOptionProto{
		Suite: hdfspb.CipherSuiteProto_AES_CTR_NOPADDING.Enum(), InKey: part[0], InIv: part[1], OutKey: part[2], OutIv: part[3],
	}, c, nil
}

func (s *server) send(nc net.Conn, m *message) error {
	b, err := appendMessage(nil, m)
	if err != nil {
		return err
	}
	_, err = nc.Write(b)
	return err
}

// delimited is a message with its length, whatever its status.
func delimited(m *message) []byte {
	raw, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return protowire.AppendBytes(nil, raw)
}
