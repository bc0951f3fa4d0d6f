package hdfs

import (
	"context"
	"errors"
	"time"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// privilegedPort is the first that every user may listen on. A DataNode on a lower one was started by root and expects no handshake.
const privilegedPort = 1024

// protection is how one connection to a DataNode begins; without levels there is no handshake.
type protection struct {
	credential sasl.Credential
	levels     []sasl.Level
	key        *hdfspb.DataEncryptionKeyProto // that the credential was made of, or nil
}

// protection decides how to connect to d for a block with the given token.
//
// Source: hadoop-hdfs-client SaslDataTransferClient.send, DFSClient.newDataEncryptionKey.
func (f *FileSystem) protection(ctx context.Context, d *hdfspb.DatanodeInfoProto, token *commonpb.TokenProto) (protection, error) {
	server, err := f.serverDefaults(ctx)
	if err != nil {
		return protection{}, err
	}
	if server.GetEncryptDataTransfer() {
		key, err := f.encryptionKey(ctx)
		if err != nil {
			return protection{}, err
		}
		if key != nil {
			return protection{credential: sasl.EncryptionKey(key), levels: []sasl.Level{sasl.Privacy}, key: key}, nil
		}
	}
	if len(f.cfg.DataProtection) == 0 || d.GetId().GetXferPort() < privilegedPort {
		return protection{}, nil
	}
	return protection{credential: sasl.BlockToken(token), levels: f.cfg.DataProtection}, nil
}

// encryptionKey asks for a key when there is none, or when it has ended.
func (f *FileSystem) encryptionKey(ctx context.Context) (*hdfspb.DataEncryptionKeyProto, error) {
	f.mu.Lock()
	key := f.key
	f.mu.Unlock()
	if key != nil && time.Now().Before(time.UnixMilli(int64(key.GetExpiryDate()))) { //nolint:gosec // fits
		return key, nil
	}
	resp := &hdfspb.GetDataEncryptionKeyResponseProto{}
	if err := f.call(ctx, "getDataEncryptionKey", &hdfspb.GetDataEncryptionKeyRequestProto{}, resp); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = resp.GetDataEncryptionKey()
	return f.key, nil
}

// forgetKey drops a key that a DataNode has refused.
func (f *FileSystem) forgetKey(key *hdfspb.DataEncryptionKeyProto) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == key {
		f.key = nil
	}
}

// hopeless says that no other DataNode would do better: the cluster's nodes are set alike, or it is the NameNode that has refused.
func hopeless(err error) bool {
	var remote *ipc.RemoteError
	return errors.Is(err, sasl.ErrProtection) || errors.As(err, &remote)
}
