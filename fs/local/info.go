package local

import (
	iofs "io/fs"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"github.com/thalweg/thalweg/fs"
)

func describe(p string, info iofs.FileInfo) fs.Info {
	out := fs.Info{Path: p, ModTime: info.ModTime(), IsDir: info.IsDir(), Irregular: !info.IsDir() && !info.Mode().IsRegular(), Mode: uint32(info.Mode().Perm())}
	if !out.IsDir {
		out.Size = info.Size()
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		out.Owner = owner(st.Uid)
	}
	return out
}

var owners sync.Map // uid to name: looking it up reads /etc/passwd

func owner(uid uint32) string {
	if v, ok := owners.Load(uid); ok {
		return v.(string)
	}
	id := strconv.FormatUint(uint64(uid), 10)
	name := id
	if u, err := user.LookupId(id); err == nil {
		name = u.Username
	}
	owners.Store(uid, name)
	return name
}
