package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

const downloads = 4

// start opens the store, with the state of cfg.Restore. Canonical handles are read when their tables are opened.
func (b *Backend) start() error {
	ctx := b.cfg.RestoreContext()
	var native, canon []state.Handle
	seen := map[int]bool{}
	for _, h := range b.cfg.Restore {
		lo, hi := max(h.Range.Start, b.cfg.Range.Start), min(h.Range.End, b.cfg.Range.End)
		if lo >= hi {
			continue
		}
		for g := lo; g < hi; g++ {
			if seen[g] {
				return fmt.Errorf("pebble: restore: key group %d is in two handles", g)
			}
			seen[g] = true
		}
		switch h.Format {
		case Format:
			native = append(native, h)
		case canonical.Format:
			canon = append(canon, h)
		default:
			return fmt.Errorf("pebble: restore key groups [%d, %d): the snapshot is in the native form of backend %q; take a canonical savepoint with that backend to change it",
				h.Range.Start, h.Range.End, h.Format)
		}
	}
	whole := len(native) == 1 && len(canon) == 0 && native[0].Range == b.cfg.Range
	if whole {
		if err := b.download(ctx, native[0], b.dbDir()); err != nil {
			return err
		}
	}
	db, err := openDB(b, b.dbDir(), false)
	if err != nil {
		return err
	}
	b.db = &pebbleStore{DB: db, finder: finder{every: b.opts.lookups, cache: b.opts.BlockCacheBytes}}
	if _, err := b.disk.settled(); err != nil {
		return fmt.Errorf("pebble: open %s: %w", b.dbDir(), err)
	}
	if whole {
		return b.adopt(native[0])
	}
	for i, h := range native {
		if err := b.ingest(ctx, h, filepath.Join(b.cfg.Dir, fmt.Sprintf("restore-%d", i))); err != nil {
			return fmt.Errorf("pebble: restore key groups [%d, %d): %w", h.Range.Start, h.Range.End, err)
		}
	}
	if len(canon) == 0 {
		return nil
	}
	if b.restore, err = canonical.NewReader(ctx, b.cfg.Source, b.cfg.MaxParallelism, b.cfg.Range, canon); err != nil {
		return fmt.Errorf("pebble: restore: %w", err)
	}
	metas, err := b.restore.Tables()
	for _, m := range metas {
		b.restored[m.Name] = m
	}
	return err
}

// adopt takes over the meta of a store that was opened as it was written.
func (b *Backend) adopt(h state.Handle) error {
	m, err := readMeta(raw(b))
	if err != nil {
		return err
	}
	if err := b.checkMax(m); err != nil {
		return err
	}
	b.meta, b.metaChanged = m, false
	if b.cfg.ReuseRestored {
		var tables []state.File
		for _, f := range h.Files {
			if f.Ref.Scope == state.Shared && strings.HasSuffix(f.Key, tableSuffix) {
				tables = append(tables, f)
			}
		}
		b.tables.Restored(tables)
	}
	return nil
}

func (b *Backend) checkMax(m dbMeta) error {
	if m.MaxParallelism != b.cfg.MaxParallelism {
		return fmt.Errorf("pebble: restore: the snapshot was written with max parallelism %d, the operator has %d; restore with the same number", m.MaxParallelism, b.cfg.MaxParallelism)
	}
	return nil
}

// download fetches the files of a handle into dir.
func (b *Backend) download(ctx context.Context, h state.Handle, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("pebble: restore: %w", err)
	}
	return parallel(ctx, downloads, len(h.Files), func(ctx context.Context, n int) error {
		if err := b.fetchFile(ctx, h.Files[n], dir); err != nil {
			return fmt.Errorf("pebble: restore %s: %w", h.Files[n].Key, err)
		}
		return nil
	})
}

func (b *Backend) fetchFile(ctx context.Context, f state.File, dir string) (err error) {
	var r io.Reader = strings.NewReader(string(f.Ref.Inline))
	if f.Ref.Inline == nil {
		x, err := b.cfg.Source.Open(ctx, f.Ref)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		r = x
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	r = io.TeeReader(io.LimitReader(r, f.Ref.Size+1), sum)
	check := func(n int64) error {
		if n != f.Ref.Size || f.Ref.CRC32C != 0 && sum.Sum32() != f.Ref.CRC32C {
			return fmt.Errorf("%d of %d bytes, or a wrong checksum: %w", n, f.Ref.Size, canonical.ErrCorrupt)
		}
		return nil
	}
	if f.Key == metaFile {
		c, err := io.ReadAll(r)
		if err == nil {
			err = check(int64(len(c)))
		}
		if err != nil {
			return err
		}
		return unpackFiles(dir, c)
	}
	if !filepath.IsLocal(f.Key) || strings.ContainsAny(f.Key, `/\`) {
		return fmt.Errorf("name of a file: %w", canonical.ErrCorrupt)
	}
	path := filepath.Join(dir, f.Key)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("a file twice: %w", canonical.ErrCorrupt)
	}
	if l, ok := b.cfg.Source.(state.LocalSource); ok && l.Link(ctx, f.Ref, path) {
		return nil
	}
	file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// What comes in goes on to the disk: a state larger than the container must not wait there as pages that cannot be taken back.
	w := vfs.NewSyncingFile(volatileFile{file}, vfs.SyncingFileOptions{NoSyncOnClose: true, BytesPerSync: 1 << 20})
	n, err := io.CopyBuffer(ctxWriter{ctx, w}, r, make([]byte, 256<<10))
	if err == nil {
		err = check(n)
	}
	return errors.Join(err, w.Close())
}

// ctxWriter ends a copy with its context.
type ctxWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c ctxWriter) Write(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(b)
}

// ingest takes the key groups of a handle that are in the backend's range: they are copied to new tables, which Pebble links in.
func (b *Backend) ingest(ctx context.Context, h state.Handle, dir string) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.download(ctx, h, dir); err != nil {
		return err
	}
	src, err := openDB(b, dir, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	m, err := readMeta(src)
	if err != nil {
		return err
	}
	if err := b.checkMax(m); err != nil {
		return err
	}
	it, err := src.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	c := copier{b: b, dir: b.cfg.Dir}
	for i := range m.Sets {
		if err := c.copySet(ctx, it, &m.Sets[i], max(h.Range.Start, b.cfg.Range.Start), min(h.Range.End, b.cfg.Range.End)); err != nil {
			return errors.Join(err, c.abort())
		}
	}
	return nil
}

// copier writes sorted entries to tables and ingests them.
type copier struct {
	b    *Backend
	dir  string
	path string
	w    *sstable.Writer
}

const ingestBytes = 32 << 20

// copySet copies the entries of one set, with the set's id here and the versions that its values have here.
func (c *copier) copySet(ctx context.Context, it *pdb.Iterator, from *setMeta, lo, hi int) error {
	to, versions, err := c.b.merge(from)
	if err != nil {
		return err
	}
	it.SetBounds(appendGroup(nil, from.ID, lo), groupEnd(from.ID, hi))
	var key, value []byte
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k := it.Key()
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		key = append(appendGroup(key[:0], to.ID, 0)[:2], k[2:]...)
		value = append(value[:0], v...)
		if from.Kind == canonical.KindTable {
			if len(v) == 0 || int(v[0]) >= len(versions) {
				return fmt.Errorf("state %q: version of a value: %w", from.Name, canonical.ErrCorrupt)
			}
			value[0] = versions[v[0]]
		}
		if err := c.add(ctx, key, value); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return c.finish(ctx)
}

// merge finds or makes the entry of a set in meta, and maps the versions of its values.
func (b *Backend) merge(from *setMeta) (*setMeta, []byte, error) {
	to := b.meta.find(from.Name)
	if to == nil {
		id := uint16(1)
		for i := range b.meta.Sets {
			id = max(id, b.meta.Sets[i].ID+1)
		}
		b.meta.Sets = append(b.meta.Sets, setMeta{ID: id, Name: from.Name, Kind: from.Kind, Key: from.Key})
		to = &b.meta.Sets[len(b.meta.Sets)-1]
		b.metaChanged = true
	}
	if to.Kind != from.Kind || !serde.Same(to.Key, from.Key) {
		return nil, nil, fmt.Errorf("state %q differs between the files of one snapshot", from.Name)
	}
	var versions []byte
	next := 0 // versions stay in order: the last is the newest
	for old, v := range from.Values {
		at := -1
		since, dated := from.Since[old]
		for i := next; i < len(to.Values) && at < 0; i++ {
			if _, d := to.Since[i]; d == dated && serde.Same(to.Values[i], v) {
				at = i
			}
		}
		if at < 0 {
			at = len(to.Values)
			to.Values = append(to.Values, v)
		}
		if at > 255 {
			return nil, nil, fmt.Errorf("state %q: more than 256 versions of the value", from.Name)
		}
		versions = append(versions, byte(at))
		if dated {
			if to.Since == nil {
				to.Since = map[int]int64{}
			}
			to.Since[at] = max(since, to.Since[at])
		}
		next = at + 1
	}
	return to, versions, nil
}

func (c *copier) add(ctx context.Context, key, value []byte) error {
	if c.w != nil && c.w.Raw().EstimatedSize() > ingestBytes {
		if err := c.finish(ctx); err != nil {
			return err
		}
	}
	if c.w == nil {
		c.b.seq++
		c.path = filepath.Join(c.dir, fmt.Sprintf("ingest-%d.sst", c.b.seq))
		f, err := vfs.Default.Create(c.path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		opts := dbOptions(c.b, false, nil)
		opts.EnsureDefaults()
		c.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), opts.MakeWriterOptions(0, raw(c.b).TableFormat()))
	}
	return c.w.Set(key, value)
}

func (c *copier) finish(ctx context.Context) error {
	if c.w == nil {
		return nil
	}
	w := c.w
	c.w = nil
	if err := w.Close(); err != nil {
		return err
	}
	if err := raw(c.b).Ingest(ctx, []string{c.path}); err != nil {
		return err
	}
	return nil
}

func (c *copier) abort() error {
	if c.w == nil {
		return nil
	}
	w := c.w
	c.w = nil
	return w.Close()
}
