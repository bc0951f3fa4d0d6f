package yarnfake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // as Hadoop's token passwords

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

type protoMessage = proto.Message

// secrets are the keys that token passwords are made with: the password is the HMAC of the identifier.
type secrets struct {
	amrm       map[int32][]byte
	current    int32 // key id of new AMRM tokens
	nm         []byte
	container  []byte
	delegation []byte
}

func newKey() []byte {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // never fails, by its contract
	return b
}

func newSecrets() secrets {
	return secrets{amrm: map[int32][]byte{1: newKey()}, current: 1, nm: newKey(), container: newKey(), delegation: newKey()}
}

func (s *secrets) roll() {
	for id := range s.amrm {
		if id != s.current {
			delete(s.amrm, id)
		}
	}
	s.current++
	s.amrm[s.current] = newKey()
}

func sign(key, identifier []byte) []byte {
	h := hmac.New(sha1.New, key)
	h.Write(identifier)
	return h.Sum(nil)
}

func tokenProto(kind token.Kind, service string, key []byte, identifier proto.Message) *commonpb.TokenProto {
	id, err := proto.MarshalOptions{Deterministic: true}.Marshal(identifier)
	if err != nil {
		panic("yarnfake: identifier cannot be encoded: " + err.Error()) // fields are ours
	}
	return token.Token{Identifier: id, Password: sign(key, id), Kind: kind, Service: service}.Proto()
}

func invalidToken(text string) error {
	return &ipc.RemoteError{Class: string(ipc.ErrInvalidToken), Message: text, Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED}
}

// amrmToken makes the attempt's token with the current key. Its service is empty, as in YARN: the holder fills it in.
func (c *Cluster) amrmToken(t *attempt) *commonpb.TokenProto {
	return tokenProto(token.KindAMRM, "", c.keys.amrm[c.keys.current],
		&yarnpb.AMRMTokenIdentifierProto{AppAttemptId: t.id.Proto(), KeyId: proto.Int32(c.keys.current)})
}

func (c *Cluster) amrmPassword(identifier []byte) ([]byte, error) {
	id, err := yarn.DecodeAMRMIdentifier(identifier)
	if err != nil {
		return nil, invalidToken("malformed identifier")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	att := yarn.AttemptIDOf(id.GetAppAttemptId())
	if t := c.attempt(att); t == nil || (t.ended && t.app.state != yarnpb.YarnApplicationStateProto_FINISHED) {
		return nil, invalidToken(att.String() + " not found in AMRMTokenSecretManager.")
	}
	key, ok := c.keys.amrm[id.GetKeyId()]
	if !ok {
		return nil, invalidToken("Invalid AMRMToken from " + att.String())
	}
	return sign(key, identifier), nil
}

func (c *Cluster) nmToken(t *attempt, n *node) *yarnpb.NMTokenProto {
	return &yarnpb.NMTokenProto{NodeId: n.id.Proto(), Token: tokenProto(token.KindNM, n.id.String(), c.keys.nm,
		&yarnpb.NMTokenIdentifierProto{AppAttemptId: t.id.Proto(), NodeId: n.id.Proto(), AppSubmitter: proto.String(t.app.user), KeyId: proto.Int32(1)})}
}

func (c *Cluster) nmPassword(identifier []byte) ([]byte, error) {
	if _, err := yarn.DecodeNMIdentifier(identifier); err != nil {
		return nil, invalidToken("malformed identifier")
	}
	return sign(c.keys.nm, identifier), nil
}

func (c *Cluster) rmTokenPassword(identifier []byte) ([]byte, error) {
	if _, err := yarn.DecodeRMDelegationIdentifier(identifier); err != nil {
		return nil, invalidToken("malformed identifier")
	}
	return sign(c.keys.delegation, identifier), nil
}
