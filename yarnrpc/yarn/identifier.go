package yarn

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// DecodeAMRMIdentifier reads the identifier of a YARN_AM_RM_TOKEN: the attempt that may talk to the scheduler. An AM
// learns its own attempt id from it.
//
// Errors: ErrMalformed. Source: hadoop-yarn-common yarn_security_token.proto.
func DecodeAMRMIdentifier(b []byte) (*yarnpb.AMRMTokenIdentifierProto, error) {
	m := &yarnpb.AMRMTokenIdentifierProto{}
	return m, decode("AMRM token", b, m)
}

// DecodeNMIdentifier reads the identifier of an NMToken.
//
// Errors: ErrMalformed.
func DecodeNMIdentifier(b []byte) (*yarnpb.NMTokenIdentifierProto, error) {
	m := &yarnpb.NMTokenIdentifierProto{}
	return m, decode("NM token", b, m)
}

// DecodeContainerIdentifier reads the identifier of a ContainerToken: id, node, size and expiry of a granted container.
//
// Errors: ErrMalformed.
func DecodeContainerIdentifier(b []byte) (*yarnpb.ContainerTokenIdentifierProto, error) {
	m := &yarnpb.ContainerTokenIdentifierProto{}
	return m, decode("container token", b, m)
}

// DecodeRMDelegationIdentifier reads the identifier of an RM_DELEGATION_TOKEN.
//
// Errors: ErrMalformed.
func DecodeRMDelegationIdentifier(b []byte) (*yarnpb.YARNDelegationTokenIdentifierProto, error) {
	m := &yarnpb.YARNDelegationTokenIdentifierProto{}
	return m, decode("RM delegation token", b, m)
}

func decode(what string, b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("yarn: identifier of %s: %w", what, ErrMalformed)
	}
	return nil
}
