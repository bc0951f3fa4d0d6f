package pebble

import (
	"encoding/binary"
	"errors"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/state"
)

// chunkBytes is about the size of the pieces that a snapshot's changes are encoded to. Together they may be as large as the cache; in pieces
// they are not copied while they grow, and each is let go of as soon as it is written.
const chunkBytes = 1 << 20

// chunks is a batch in pieces.
type chunks struct {
	b     *Backend
	piece int // bytes of a piece; 0 is chunkBytes
	full  []batch
	cur   batch
	// largest are the largest entries of each set, by its id; at is that of the last entry.
	largest map[uint16]*state.Largest
	at      *state.Largest
	id      uint16
}

// see notes the size of an entry.
func (c *chunks) see(key []byte, bytes int) {
	if len(key) < tablePrefix { // meta
		return
	}
	id := binary.BigEndian.Uint16(key)
	if c.at == nil || c.id != id {
		if c.largest == nil {
			c.largest = map[uint16]*state.Largest{}
		}
		if c.largest[id] == nil {
			c.largest[id] = &state.Largest{}
		}
		c.at, c.id = c.largest[id], id
	}
	c.at.See(key[tablePrefix:], int64(bytes))
}

func (c *chunks) room() batch {
	if c.cur.Len() >= max(c.piece, chunkBytes) {
		c.full = append(c.full, c.cur)
		c.cur = c.b.db.newBatchOf(chunkBytes + chunkBytes/8)
	}
	return c.cur
}

// Set implements batch.
func (c *chunks) Set(key, value []byte, o *pdb.WriteOptions) error {
	c.see(key, len(key)-tablePrefix+len(value))
	return c.room().Set(key, value, o)
}

// Delete implements batch.
func (c *chunks) Delete(key []byte, o *pdb.WriteOptions) error { return c.room().Delete(key, o) }

// DeleteRange implements batch.
func (c *chunks) DeleteRange(start, end []byte, o *pdb.WriteOptions) error {
	return c.room().DeleteRange(start, end, o)
}

// Len implements batch.
func (c *chunks) Len() int {
	n := c.cur.Len()
	for _, x := range c.full {
		n += x.Len()
	}
	return n
}

// Empty implements batch.
func (c *chunks) Empty() bool { return len(c.full) == 0 && c.cur.Empty() }

// Reset implements batch.
func (c *chunks) Reset() {
	for _, x := range c.full {
		_ = x.Close() // only gives memory back
	}
	c.full = nil
	c.cur.Reset()
}

// Close implements batch.
func (c *chunks) Close() error {
	var errs []error
	for _, x := range c.pieces() {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

// apply writes the pieces in their order and gives them up. After an error those before were written.
func (c *chunks) apply() (err error) {
	for _, x := range c.pieces() {
		if err == nil {
			err = c.b.apply(x)
		}
		err = errors.Join(err, x.Close())
	}
	return err
}

// pieces are all, which the caller closes.
func (c *chunks) pieces() []batch {
	all := c.full
	if c.cur != nil {
		all = append(all, c.cur)
	}
	c.full, c.cur = nil, nil
	return all
}
