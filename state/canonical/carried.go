package canonical

import (
	"bytes"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Carried is restored state that nobody opened, as it is stored: it goes on into later files without being decoded.
type Carried struct {
	Metas  []state.TableMeta // one for each schema of the values, the newest last; all of one name
	chunks []carriedChunk    // of one key group after the other
	groups map[int][]int     // by key group, the indexes of its chunks
	bytes  int64
	count  int64
}

type carriedChunk struct {
	group, meta int
	count       uint32
	payload     []byte
}

// Carry reads the named table or timer set.
func (r *Reader) Carry(name string) (*Carried, error) {
	c := &Carried{groups: map[int][]int{}}
	c.metas(r, name)
	err := r.chunks(name, func(f *file, x *chunk) error {
		c.groups[x.group] = append(c.groups[x.group], len(c.chunks))
		c.chunks = append(c.chunks, carriedChunk{x.group, c.meta(&f.head.Tables[x.table]), x.count, bytes.Clone(x.payload)})
		c.bytes += int64(len(x.payload))
		c.count += int64(x.count)
		return nil
	})
	return c, err
}

// Versions are the tables of a name, one for each schema that values were stored with, the newest last.
func (r *Reader) Versions(name string) []state.TableMeta {
	var c Carried
	c.metas(r, name)
	return c.Metas
}

func (c *Carried) metas(r *Reader, name string) {
	for _, f := range r.files {
		for i := range f.head.Tables {
			if t := &f.head.Tables[i]; t.Name == name {
				c.meta(t)
			}
		}
	}
}

// meta is the index of a schema.
func (c *Carried) meta(t *tableHead) int {
	for i := range c.Metas {
		if serde.Same(c.Metas[i].Value, t.Value) {
			return i
		}
	}
	c.Metas = append(c.Metas, state.TableMeta{Name: t.Name, Kind: t.Kind, Key: t.Key, Value: t.Value, Stored: -1})
	return len(c.Metas) - 1
}

// Unopened describes it.
func (c *Carried) Unopened() state.Unopened {
	return state.Unopened{Name: c.Metas[0].Name, Entries: c.count, Bytes: c.bytes}
}

// Write writes the entries of one key group. The first of Metas is table first of the file.
func (c *Carried) Write(w *Writer, first, group int) error {
	for _, i := range c.groups[group] {
		x := &c.chunks[i]
		if err := w.addChunk(first+x.meta, x.count, x.payload); err != nil {
			return err
		}
	}
	return nil
}

// Scan calls fn for every entry, as Reader.Scan does.
func (c *Carried) Scan(_ string, fn func(e *Entry) error) error {
	var e Entry
	f := &file{}
	for i := range c.chunks {
		x := &c.chunks[i]
		m := &c.Metas[x.meta]
		e.Group, e.Schema = x.group, &m.Value
		if err := scanChunk(f, 0, x.payload, x.count, m.Kind == KindTimers, &e, fn); err != nil {
			return err
		}
	}
	return nil
}

// Scanner is a Reader, or a Carried.
type Scanner interface {
	Scan(name string, fn func(e *Entry) error) error
}

// Readers are the codecs that read values of several schemas, made as they are met.
type Readers[V any] struct {
	make func(stored serde.Schema) (serde.Codec[V], error)
	of   []*serde.Schema
	all  []serde.Codec[V]
}

// NewReaders returns the codecs that reader makes.
func NewReaders[V any](reader func(stored serde.Schema) (serde.Codec[V], error)) *Readers[V] {
	return &Readers[V]{make: reader}
}

// Of is the codec of an entry's value.
func (r *Readers[V]) Of(e *Entry) (serde.Codec[V], error) {
	for i, s := range r.of {
		if s == e.Schema {
			return r.all[i], nil
		}
	}
	c, err := r.make(*e.Schema)
	if err == nil {
		r.of, r.all = append(r.of, e.Schema), append(r.all, c)
	}
	return c, err
}
