package sasl

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

const (
	magic     = 0xDEADBEEF
	digestURI = "hdfs/0" // SaslParticipant's protocol and server name
)

// Credential is the user and the password of the digest.
type Credential struct {
	User     string
	Password []byte
}

// BlockToken is the credential of a cluster with dfs.data.transfer.protection: the token that the NameNode gave with the block.
func BlockToken(t *commonpb.TokenProto) Credential {
	enc := base64.StdEncoding
	return Credential{User: enc.EncodeToString(t.GetIdentifier()), Password: []byte(enc.EncodeToString(t.GetPassword()))}
}

// EncryptionKey is the credential of a cluster with dfs.encrypt.data.transfer, where the level is Privacy: a key that the NameNode gives
// for all DataNodes. Source: SaslDataTransferClient.getUserNameFromEncryptionKey.
func EncryptionKey(k *hdfspb.DataEncryptionKeyProto) Credential {
	enc := base64.StdEncoding
	id := strconv.Itoa(int(int32(k.GetKeyId()))) //nolint:gosec // an int of Java, which may be negative
	return Credential{
		User:     strings.Join([]string{id, k.GetBlockPoolId(), enc.EncodeToString(k.GetNonce())}, " "),
		Password: []byte(enc.EncodeToString(k.GetEncryptionKey())),
	}
}

// Client runs the handshake on a fresh connection, at the first of levels that the DataNode offers. The connection that it returns is nc,
// or nc with protection around it: reads and writes are independent of each other, each for one goroutine at a time. The caller sets
// deadlines, and closes nc after an error.
//
// Errors: ErrProtection, ErrToken, ErrUnknownKey, ErrMalformed, digestmd5.ErrProof, those of nc.
func Client(nc net.Conn, c Credential, levels []Level) (net.Conn, error) {
	hello, err := appendMessage(binary.BigEndian.AppendUint32(nil, magic), &message{Payload: []byte{}})
	if err != nil {
		return nil, err
	}
	if _, err := nc.Write(hello); err != nil {
		return nil, err
	}
	m, err := readMessage(nc)
	if err != nil {
		return nil, ended(err)
	}
	level, err := choose(m.GetPayload(), levels)
	if err != nil {
		return nil, err
	}
	digest := digestmd5.NewClient(c.User, c.Password, digestURI, level.QOP())
	answer, _, err := digest.Step(m.GetPayload())
	if err != nil {
		return nil, err
	}
	reply := &message{Payload: answer}
	if level == Privacy {
		reply.CipherOption = []*hdfspb.CipherOptionProto{{Suite: hdfspb.CipherSuiteProto_AES_CTR_NOPADDING.Enum()}}
	}
	b, err := appendMessage(nil, reply)
	if err != nil {
		return nil, err
	}
	if _, err := nc.Write(b); err != nil {
		return nil, err
	}
	if m, err = readMessage(nc); err != nil {
		return nil, err
	}
	if _, done, err := digest.Step(m.GetPayload()); err != nil {
		return nil, err
	} else if !done {
		return nil, fmt.Errorf("%w: the data node did not prove itself", ErrMalformed)
	}
	switch {
	case level == Privacy && len(m.GetCipherOption()) > 0:
		return newCTR(nc, m.GetCipherOption()[0], digest.Wrapper())
	case len(m.GetCipherOption()) > 0:
		return nil, fmt.Errorf("%w: a cipher at level %s", ErrMalformed, level)
	case level == Authentication:
		return nc, nil
	}
	return newSealed(nc, digest.Wrapper()), nil
}

// choose returns the first of our levels that the challenge offers.
func choose(challenge []byte, levels []Level) (Level, error) {
	ch, err := digestmd5.ParseChallenge(challenge)
	if err != nil {
		return "", err
	}
	for _, l := range levels {
		if slices.Contains(ch.QOP, l.QOP()) {
			return l, nil
		}
	}
	var offered []string
	for _, l := range []Level{Authentication, Integrity, Privacy} {
		if slices.Contains(ch.QOP, l.QOP()) {
			offered = append(offered, string(l))
		}
	}
	return "", fmt.Errorf("%w: the data node offers %s, this client accepts %s: set %s to one that the data node has",
		ErrProtection, strings.Join(offered, ","), join(levels), KeyProtection)
}

func join(levels []Level) string {
	words := make([]string, len(levels))
	for i, l := range levels {
		words[i] = string(l)
	}
	return strings.Join(words, ",")
}
