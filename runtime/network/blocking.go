package network

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// spill is what makes a Partition a blocking one: what the task writes goes to one file on a local disk, and consumers read it, each from
// the beginning and as often as they like, once the partition is finished and until it is released. A subpartition is the list of its
// buffers in the file; the ends (EndOfData, EndOfPartition) follow from the list's. The index is in memory: the partition is lost with
// its process, and one that cannot be read again as it was written fails its consumers with PartitionLost. Source: Flink
// BoundedBlockingSubpartition.
type spill struct {
	p    *Partition
	path string
	f    *os.File
	size int64       // of the file; of the writer
	subs [][]segment // of the writer until the partition is registered, then constant

	mu       sync.Mutex
	views    map[*Channel]struct{} // being read
	released bool
}

// segment is a buffer in the file.
type segment struct {
	at     int64
	length int
	sum    uint32 // CRC-32C
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// view is the place of a consumer in a subpartition of a spill.
type view struct {
	sub    int
	next   int  // segment
	ending bool // EndOfData was taken
}

// NewBlockingPartition makes a partition whose content goes to a file in dir, a folder of this process alone, and which consumers find once
// Finish has returned. It stays until Release, ReleaseBefore or Close. Events other than the ends are dropped: there are none in BATCH. Errors:
// ErrClosed; of the disk.
func (e *Environment) NewBlockingPartition(ctx context.Context, id PartitionID, subpartitions int, dir string) (*Partition, error) {
	p, err := e.newPartition(ctx, id, subpartitions)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, diskError(id, "make its folder", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s_%d", id.Producer, id.Output))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, diskError(id, "create its file", err)
	}
	p.spill = &spill{p: p, path: path, f: f, subs: make([][]segment, subpartitions), views: map[*Channel]struct{}{}}
	return p, nil
}

// diskError says what to do about a full disk.
func diskError(id PartitionID, what string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("network: spill partition %s: %s: %w: make room there, or name larger disks with io.tmp.dirs", id, what, err)
	}
	return fmt.Errorf("network: spill partition %s: %s: %w", id, what, err)
}

// write appends the buffer of a channel, which is empty afterwards.
func (s *spill) write(c *Channel) error {
	if err := context.Cause(s.p.ctx); err != nil {
		return err
	}
	n, err := s.f.Write(c.buf)
	if err != nil {
		return diskError(s.p.id, "write", err)
	}
	s.subs[c.index] = append(s.subs[c.index], segment{s.size, n, crc32.Checksum(c.buf, castagnoli)})
	s.size += int64(n)
	s.p.bytesOut.Add(int64(n))
	c.buf = c.buf[:0]
	return nil
}

// finish makes the partition readable.
func (s *spill) finish() error {
	if err := s.p.FlushAll(); err != nil {
		return err
	}
	if err := s.p.env.register(s.p); err != nil {
		return err
	}
	s.p.finished = true
	return nil
}

// reader makes a Channel that reads a subpartition from its beginning. It is attached next.
func (s *spill) reader(sub int) *Channel {
	c := &Channel{p: s.p, index: sub, view: &view{sub: sub}}
	s.mu.Lock()
	if s.released {
		c.done, c.err = true, s.gone(sub)
	} else {
		s.views[c] = struct{}{}
	}
	s.mu.Unlock()
	return c
}

func (s *spill) gone(sub int) *ConnectionError {
	return &ConnectionError{Kind: ProducerGone, Peer: "local", Partition: s.p.id, Subpartition: sub, Err: errors.New("the partition was released")}
}

func (s *spill) forget(c *Channel) {
	s.mu.Lock()
	delete(s.views, c)
	s.mu.Unlock()
}

// release removes the file. Who is reading fails.
func (s *spill) release() {
	s.mu.Lock()
	views := s.views
	s.views, s.released = map[*Channel]struct{}{}, true
	f := s.f
	s.f = nil
	s.mu.Unlock()
	if f == nil {
		return
	}
	for c := range views {
		c.producerGone(s.gone(c.index))
	}
	if err := errors.Join(f.Close(), os.Remove(s.path)); err != nil {
		s.p.env.log.Warn().Err(err).Stringer("partition", s.p.id).Msg("the file of a partition could not be removed")
	}
}

// read reads a segment of a subpartition.
func (s *spill) read(sub int, g segment) ([]byte, *ConnectionError) {
	s.mu.Lock()
	f := s.f
	s.mu.Unlock()
	if f == nil {
		return nil, s.gone(sub)
	}
	e := s.p.env
	buf := e.pool.get()
	if cap(buf) < g.length {
		e.pool.put(buf)
		buf = make([]byte, g.length)
	}
	buf = buf[:g.length]
	_, err := f.ReadAt(buf, g.at)
	if err == nil && crc32.Checksum(buf, castagnoli) != g.sum {
		err = fmt.Errorf("the %d bytes from %d on are not those that were written", g.length, g.at)
	}
	if err != nil {
		e.pool.put(buf)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.released { // while it was read
			return nil, s.gone(sub)
		}
		return nil, &ConnectionError{Kind: PartitionLost, Peer: "local", Partition: s.p.id, Subpartition: sub, Err: fmt.Errorf("read %s: %w", s.path, err)}
	}
	return buf, nil
}

// takeView is take for a channel that reads a spill. The file is read without a lock: a channel has one reader.
func (c *Channel) takeView(credit bool) (e entry, backlog int, more, ok bool) {
	s, v := c.p.spill, c.view
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return entry{}, 0, false, false
	}
	left := len(s.subs[v.sub]) - v.next
	switch {
	case left > 0 && !credit:
		c.mu.Unlock()
		return entry{}, left, true, false
	case left > 0:
		g := s.subs[v.sub][v.next]
		v.next++
		c.mu.Unlock()
		data, err := s.read(c.index, g)
		if err != nil {
			c.producerGone(err)
			return entry{}, 0, false, false
		}
		return entry{data: data}, left - 1, true, true
	case !v.ending:
		v.ending = true
		c.mu.Unlock()
		return entry{event: &Event{Kind: EndOfData}}, 0, true, true
	}
	c.done, c.reader = true, nil
	c.mu.Unlock()
	s.forget(c)
	return entry{event: &Event{Kind: EndOfPartition}}, 0, false, true
}
