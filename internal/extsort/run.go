package extsort

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A run is a file of records in order, each: length of the key u32, length of the value u32 (big endian), key, value.
const recordHeader = 8

// maxRecord bounds a key or a value, so that a damaged file cannot make us allocate without end.
const maxRecord = 1 << 30

type runWriter struct {
	path    string
	f       *os.File
	w       *bufio.Writer
	written *int64
}

func newRunWriter(path string, written *int64) (*runWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, diskError("create a run", err)
	}
	return &runWriter{path, f, bufio.NewWriterSize(f, 128<<10), written}, nil
}

func (w *runWriter) add(key, value []byte) error {
	if len(key) > maxRecord || len(value) > maxRecord {
		return fmt.Errorf("extsort: write a run: record with a key of %d bytes and %d more is larger than %d", len(key), len(value), maxRecord)
	}
	var h [recordHeader]byte
	binary.BigEndian.PutUint32(h[:], uint32(len(key)))
	binary.BigEndian.PutUint32(h[4:], uint32(len(value)))
	for _, b := range [][]byte{h[:], key, value} {
		if _, err := w.w.Write(b); err != nil {
			return diskError("write a run", err)
		}
	}
	*w.written += int64(recordHeader + len(key) + len(value))
	return nil
}

func (w *runWriter) finish() error {
	if err := w.w.Flush(); err != nil {
		return errors.Join(diskError("write a run", err), w.f.Close())
	}
	if err := w.f.Close(); err != nil {
		return diskError("close a run", err)
	}
	return nil
}

func (w *runWriter) abort() error { return w.f.Close() }

// runReader reads a run block by block. Blocks are not used again: records are slices of them.
type runReader struct {
	index      int // of the run among those that are merged
	f          *os.File
	size       int
	block      []byte // what is left of the current one
	end        bool   // of the file
	key, value []byte
	prefix     uint64
}

// next reads the next record; ok is false at the end.
func (r *runReader) next() (ok bool, err error) {
	if len(r.block) < recordHeader {
		if err := r.fill(recordHeader); err != nil {
			return false, err
		}
		if len(r.block) == 0 {
			return false, nil
		}
	}
	if len(r.block) < recordHeader {
		return false, fmt.Errorf("extsort: read run %s: %w", r.f.Name(), io.ErrUnexpectedEOF)
	}
	k, v := int(binary.BigEndian.Uint32(r.block)), int(binary.BigEndian.Uint32(r.block[4:]))
	if k > maxRecord || v > maxRecord {
		return false, fmt.Errorf("extsort: read run %s: a record of %d and %d bytes: the file is damaged", r.f.Name(), k, v)
	}
	n := recordHeader + k + v
	if len(r.block) < n {
		if err := r.fill(n); err != nil {
			return false, err
		}
		if len(r.block) < n {
			return false, fmt.Errorf("extsort: read run %s: %w", r.f.Name(), io.ErrUnexpectedEOF)
		}
	}
	r.key, r.value = r.block[recordHeader:recordHeader+k:recordHeader+k], r.block[recordHeader+k:n:n]
	r.prefix = prefix(r.key)
	r.block = r.block[n:]
	return true, nil
}

// fill makes a new block that begins with what is left, of at least need bytes unless the file ends before.
func (r *runReader) fill(need int) error {
	if r.end {
		return nil
	}
	b := make([]byte, max(r.size, need))
	have := copy(b, r.block)
	n, err := io.ReadFull(r.f, b[have:])
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.end = true
	case err != nil:
		return fmt.Errorf("extsort: read run %s: %w", r.f.Name(), err)
	}
	r.block = b[:have+n]
	return nil
}

// merge opens runs and merges them.
func (s *Sorter) merge(paths []string) (*Iterator, error) {
	it := &Iterator{}
	for i, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			return nil, fmt.Errorf("extsort: open a run: %w", err)
		}
		s.open = append(s.open, f)
		r := &runReader{index: i, f: f, size: s.cfg.BlockSize}
		ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if ok {
			it.runs = append(it.runs, r)
		}
	}
	heap.Init(&it.runs)
	return it, nil
}

// Iterator goes over sorted records.
type Iterator struct {
	memory []entry
	at     int
	runs   runHeap
	began  bool // the first of runs was returned and is to be moved on
}

// Next returns the next record; ok is false when there is none.
func (it *Iterator) Next() (key, value []byte, ok bool, err error) {
	if it.at < len(it.memory) {
		e := &it.memory[it.at]
		it.at++
		return e.key, e.value, true, nil
	}
	if it.began {
		ok, err := it.runs[0].next()
		if err != nil {
			return nil, nil, false, err
		}
		if ok {
			heap.Fix(&it.runs, 0)
		} else {
			heap.Pop(&it.runs)
		}
	}
	if it.began = len(it.runs) > 0; !it.began {
		return nil, nil, false, nil
	}
	return it.runs[0].key, it.runs[0].value, true, nil
}

type runHeap []*runReader

func (h runHeap) Len() int { return len(h) }
func (h runHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.prefix != b.prefix {
		return a.prefix < b.prefix
	}
	if c := bytes.Compare(a.key, b.key); c != 0 {
		return c < 0
	}
	return cmp.Less(a.index, b.index)
}
func (h runHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)   { *h = append(*h, x.(*runReader)) }
func (h *runHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
