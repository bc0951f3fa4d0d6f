package pebble

import (
	"fmt"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/state"
)

// Options are the sizes of a backend. The zero value derives all of them from state.Config.MemoryBytes.
type Options struct {
	// MemoryBytes is the whole; 0 is that of the pool or the configuration, or 64 MiB. CacheBytes and BlockCacheBytes are those of all members
	// of a pool together.
	MemoryBytes int64
	// CacheBytes bounds the decoded write-back cache; 0 is half of MemoryBytes. Between a snapshot and its hard links it may grow by a
	// quarter.
	CacheBytes int64
	// BlockCacheBytes is Pebble's cache of file blocks; 0 is what remains.
	BlockCacheBytes int64
	// MemTableBytes is the size of a memtable; 0 is an eighth of the block cache, or of a member's part, within 256 KiB and 32 MiB. Pebble takes memtables out of
	// the block cache: less than four of them in it leaves almost no cache, and reads get more than ten times slower.
	MemTableBytes int64
	// TimersInMemory bounds the timers of a set that are held in memory; later ones wait on disk. 0 is one per 256 bytes of MemoryBytes.
	TimersInMemory int

	fs      vfs.FS // the local disk; set by tests
	lookups int    // between two decisions of the finder; set by tests
	// aheadEvery is how many changes are between two looks for some to write ahead of a snapshot; set by tests.
	aheadEvery int
}

func (o Options) below() vfs.FS {
	if o.fs != nil {
		return o.fs
	}
	return vfs.Default
}

const (
	defaultMemory = 64 << 20
	minMemTable   = 256 << 10
	maxMemTable   = 32 << 20
	cachePerTable = 4 // least ratio of block cache to memtable
)

func (o Options) withDefaults(cfg state.Config) (Options, error) {
	members := int64(1)
	if p := cfg.Pool; p != nil && o.MemoryBytes == 0 {
		o.MemoryBytes, members = p.Bytes, int64(p.Members)
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = cfg.MemoryBytes
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = defaultMemory
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = o.MemoryBytes / 2
	}
	if o.BlockCacheBytes == 0 {
		o.BlockCacheBytes = o.MemoryBytes - o.CacheBytes
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = min(max(o.BlockCacheBytes/members/8, minMemTable), maxMemTable)
	}
	if o.TimersInMemory == 0 {
		o.TimersInMemory = int(max(o.MemoryBytes/members/256, 1<<12))
	}
	if o.aheadEvery == 0 {
		o.aheadEvery = aheadEvery
	}
	if o.lookups == 0 {
		o.lookups = lookupsPerDecision
	}
	if o.BlockCacheBytes < cachePerTable*o.MemTableBytes {
		return o, fmt.Errorf("pebble: block cache of %d bytes holds fewer than %d memtables of %d bytes, which makes reads very slow; give the backend at least %d bytes of memory (taskmanager.memory.process.size, taskmanager.memory.managed.fraction)",
			o.BlockCacheBytes, cachePerTable, o.MemTableBytes, 2*cachePerTable*o.MemTableBytes)
	}
	return o, nil
}

// dbOptions are Pebble's own. There is no write-ahead log: the checkpoint is the log.
func dbOptions(b *Backend, readOnly bool, open *opening) *pdb.Options {
	o, d := b.opts, b.disk
	p := &pdb.Options{
		Cache:                       b.cache.(*pdb.Cache),
		DisableWAL:                  true,
		ReadOnly:                    readOnly,
		FormatMajorVersion:          pdb.FormatNewest,
		FS:                          d,
		Logger:                      logger{b.cfg.Logger, open},
		MemTableSize:                uint64(o.MemTableBytes),
		EventListener:               listener(d),
		MemTableStopWritesThreshold: 1 << 20, // Backend.apply waits, since Pebble's waiting cannot be ended
		L0CompactionThreshold:       10,      // half as many sorted runs, all at once: each checkpoint makes one, and each compaction may write all of the next level anew
		L0StopWritesThreshold:       1 << 20,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                512,
	}
	p.TargetFileSizes[0] = 8 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = 8 << 10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return p
}

// logger gives Pebble's messages to zerolog.
type logger struct {
	log  zerolog.Logger
	open *opening
}

func (l logger) Infof(format string, args ...any)  { l.log.Debug().Msgf(format, args...) }
func (l logger) Errorf(format string, args ...any) { l.log.Error().Msgf(format, args...) }

// Fatalf is called for faults after which the store cannot go on, such as a manifest that cannot be made. It must not return.
func (l logger) Fatalf(format string, args ...any) {
	l.open.fatal(fmt.Errorf("pebble: "+format, args...))
}

// volatileFS leaves out every sync: the files need not survive the machine, since recovery starts from a checkpoint. Only SyncTo is left,
// which begins to write and waits only for what it began before: pages that are not yet written cannot be taken back when the container's memory is full, and
// whoever needs memory then waits for the disk.
type volatileFS struct{ vfs.FS }

type volatileFile struct{ vfs.File }

func (volatileFile) Sync() error     { return nil }
func (volatileFile) SyncData() error { return nil }

func volatile(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return volatileFile{f}, nil
}

func (v volatileFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return volatile(v.FS.Create(name, c))
}

func (v volatileFS) OpenDir(name string) (vfs.File, error) { return volatile(v.FS.OpenDir(name)) }

func (v volatileFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return volatile(v.FS.OpenReadWrite(name, c, opts...))
}

func (v volatileFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return volatile(v.FS.ReuseForWrite(oldname, newname, c))
}
