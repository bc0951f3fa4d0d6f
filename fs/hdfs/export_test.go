package hdfs

import (
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

// SpoilTokens makes DataNodes refuse the tokens that an open file holds, as they do when those have ended.
func SpoilTokens(r fs.Reader) {
	open := r.(*reader)
	open.blockMu.Lock()
	defer open.blockMu.Unlock()
	spoiled := make([]*hdfspb.LocatedBlockProto, len(open.located))
	for i, b := range open.located {
		spoiled[i] = proto.Clone(b).(*hdfspb.LocatedBlockProto)
		for j := range spoiled[i].BlockToken.Password {
			spoiled[i].BlockToken.Password[j] ^= 1
		}
	}
	open.located = spoiled
}

// SpoilKey makes DataNodes refuse the encryption key, as they do when it is too old.
func SpoilKey(f *FileSystem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	spoiled := proto.Clone(f.key).(*hdfspb.DataEncryptionKeyProto)
	spoiled.KeyId = proto.Uint32(spoiled.GetKeyId() + 1000)
	f.key = spoiled
}
