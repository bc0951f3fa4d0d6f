package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrUnkeyed says that restored records have no key.
var ErrUnkeyed = errors.New("the records that are under way in the checkpoint, which is unaligned, were sent without a key, and the job sends them there by key; " +
	"let the job that wrote it take a savepoint, which holds no such records")

// Sift takes restored exchange data apart, which was under way to some subtask when an unaligned checkpoint was taken, and returns the
// records for this one: those whose key hash wants accepts, or, with wants nil, whose subtask is mine; mine < 0 takes all. measure is
// Type.Restored's.
//
// Watermarks and idleness are left out. Who sent them starts anew and sends its own, as after every restore; until then its channel holds
// the watermark back, so that no record here comes too late. A watermark that was under way when other subtasks sent could be above records
// that a producer at another parallelism sends now.
//
// data is not changed and not kept. Errors: ErrCorrupt; ErrUnkeyed, with wants.
func Sift(data []byte, measure func(b []byte) (n, subtask int, err error), wants func(hash uint32) bool, mine int) ([]byte, error) {
	var out []byte
	for b := data; len(b) > 0; {
		tag, head := b[0], 1
		switch {
		case tag == tagWatermark && len(b) >= 9:
			b = b[9:]
			continue
		case tag == tagIdle || tag == tagActive:
			b = b[1:]
			continue
		case tag > tagRecordMax:
			return nil, fmt.Errorf("%w: restored data with tag %#x", ErrCorrupt, tag)
		}
		if tag&tagTime != 0 {
			head += 8
		}
		var hash uint32
		if tag&tagHash != 0 {
			head += 4
		}
		if len(b) < head {
			return nil, fmt.Errorf("%w: restored record cut short", ErrCorrupt)
		}
		if wants != nil && tag&tagHash == 0 {
			return nil, ErrUnkeyed
		}
		if tag&tagHash != 0 {
			hash = binary.LittleEndian.Uint32(b[head-4:])
		}
		n, subtask, err := measure(b[head:])
		if err != nil {
			return nil, fmt.Errorf("%w: restored record: %w", ErrCorrupt, err)
		}
		if n += head; wants != nil && wants(hash) || wants == nil && (mine < 0 || subtask == mine) {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out, nil
}
