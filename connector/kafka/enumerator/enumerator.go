// Package enumerator is the pure core of the Kafka source's split enumerator: it knows which partitions exist, which of them were given
// to a subtask, and which wait for a reader. Layer L1; no goroutine, clock or I/O: its shell in connector/kafka carries out the effects.
//
// Invariants:
//  1. A partition is handed out once, unless a reader gives it back.
//  2. Partitions of the first discovery start where the user said, those found later at their beginning.
//  3. What was discovered but not yet turned into an offset is not in the state: it is discovered again after a restore.
package enumerator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/thalweg/thalweg/connector"
)

// Key names a partition.
type Key struct {
	Topic     string
	Partition int32
}

func (k Key) String() string { return fmt.Sprintf("%s-%d", k.Topic, k.Partition) }

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Partition is a partition found in the cluster's metadata. A zero topic id is unknown (brokers before 2.8).
type Partition struct {
	Key
	TopicID [16]byte
}

// Effect is something that the shell must do; effects are carried out in order.
type Effect interface{ effect() }

// Resolve asks for the splits (with offsets) of new partitions, to be given to Resolved. Initial is false for partitions found later,
// which start at their beginning.
type Resolve struct {
	Partitions []Partition
	Initial    bool
}

// Assign gives splits to a subtask.
type Assign struct {
	Subtask int
	Splits  []connector.Split
}

// NoMore tells a subtask that it has everything.
type NoMore struct{ Subtask int }

// Recreated says that a topic has another id than when its partition was assigned.
type Recreated struct {
	Key
	Old, New [16]byte
}

// Missing says that a known partition is not in the metadata now.
type Missing struct{ Key }

func (Resolve) effect()   {}
func (Assign) effect()    {}
func (NoMore) effect()    {}
func (Recreated) effect() {}
func (Missing) effect()   {}

type entry struct {
	topicID [16]byte
	pending *connector.Split // nil once assigned
}

// Core is the state. Not safe for concurrent use.
type Core struct {
	parallelism int
	final       bool // no discovery after the first
	bounded     bool
	done        bool // the first discovery was resolved, in this run or before the restore
	listed      bool // there was a discovery in this run: a restored job may find more partitions in it
	resolving   map[Key]bool
	known       map[Key]*entry
	readers     map[int]bool
	told        map[int]bool
}

// Config configures a Core.
type Config struct {
	Parallelism int
	// Final says that there is one discovery only; readers are told when they have everything.
	Final bool
	// Bounded sources ignore partitions that appear after the first discovery.
	Bounded bool
}

// New makes the core of a new job (restored nil) or of a restored one.
func New(c Config, restored []byte) (*Core, error) {
	e := &Core{
		parallelism: c.Parallelism, final: c.Final, bounded: c.Bounded,
		resolving: map[Key]bool{}, known: map[Key]*entry{}, readers: map[int]bool{}, told: map[int]bool{},
	}
	if restored != nil {
		if err := e.restore(restored); err != nil {
			return nil, fmt.Errorf("kafka: restore enumerator: %w", err)
		}
	}
	return e, nil
}

// Owner is the subtask of a partition: (startIndex(topic) + partition) mod parallelism, so that the partitions of one topic spread
// evenly and single-partition topics do not all meet at subtask 0.
//
// Source: Flink's KafkaSourceEnumerator.getSplitOwner (the hash of the topic name is not Java's).
func Owner(k Key, parallelism int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Topic))
	start := int(h.Sum32()&0x7fffffff) % parallelism
	return (start + int(k.Partition)) % parallelism
}

// Discovered is called with all partitions that the subscription has now.
func (e *Core) Discovered(parts []Partition) []Effect {
	e.listed = true
	var effects []Effect
	seen := make(map[Key]bool, len(parts))
	var fresh []Partition
	for _, p := range parts {
		seen[p.Key] = true
		k, ok := e.known[p.Key]
		switch {
		case !ok && !e.resolving[p.Key]:
			if e.done && e.bounded {
				continue
			}
			fresh = append(fresh, p)
		case ok && k.topicID != p.TopicID && k.topicID != [16]byte{} && p.TopicID != [16]byte{}:
			effects = append(effects, Recreated{p.Key, k.topicID, p.TopicID})
			k.topicID = p.TopicID
		}
	}
	for _, k := range e.keys() {
		if !seen[k] {
			effects = append(effects, Missing{k})
		}
	}
	if len(fresh) > 0 {
		slices.SortFunc(fresh, func(a, b Partition) int { return compareKeys(a.Key, b.Key) })
		for _, p := range fresh {
			e.resolving[p.Key] = true
		}
		return append(effects, Resolve{fresh, !e.done})
	}
	if !e.done {
		e.done = true
	}
	return append(effects, e.handOut()...)
}

// Resolved is called with the splits of partitions that Resolve named. Partitions without a split (nothing to read) are known as done.
func (e *Core) Resolved(parts []Partition, splits map[Key]connector.Split) []Effect {
	for _, p := range parts {
		delete(e.resolving, p.Key)
		en := &entry{topicID: p.TopicID}
		if s, ok := splits[p.Key]; ok {
			en.pending = &s
		}
		e.known[p.Key] = en
	}
	e.done = true
	return e.handOut()
}

// ReaderUp is called when a subtask's reader is up.
func (e *Core) ReaderUp(subtask int) []Effect {
	e.readers[subtask] = true
	delete(e.told, subtask)
	return e.handOut()
}

// SplitsBack takes back splits from a failed reader.
func (e *Core) SplitsBack(subtask int, splits map[Key]connector.Split) []Effect {
	delete(e.readers, subtask)
	delete(e.told, subtask)
	for k, s := range splits {
		en := e.known[k]
		if en == nil {
			en = &entry{}
			e.known[k] = en
		}
		en.pending = &s
	}
	return e.handOut()
}

func (e *Core) keys() []Key {
	keys := make([]Key, 0, len(e.known))
	for k := range e.known {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func (e *Core) handOut() []Effect {
	if !e.done {
		return nil
	}
	bySubtask := map[int][]connector.Split{}
	for _, k := range e.keys() {
		en := e.known[k]
		owner := Owner(k, e.parallelism)
		if en.pending == nil || !e.readers[owner] {
			continue
		}
		bySubtask[owner] = append(bySubtask[owner], *en.pending)
		en.pending = nil
	}
	var effects []Effect
	for sub := range e.parallelism {
		if s := bySubtask[sub]; len(s) > 0 {
			effects = append(effects, Assign{sub, s})
		}
		if e.final && e.listed && e.readers[sub] && !e.told[sub] && len(e.resolving) == 0 {
			e.told[sub] = true
			effects = append(effects, NoMore{sub})
		}
	}
	return effects
}

const version = 1

// Snapshot encodes the state. Version 1, big endian: version u8, done u8, count u32, then per partition: topic length u16, topic,
// partition u32, topic id 16 bytes, pending length u32 (0: assigned), pending split state.
func (e *Core) Snapshot() []byte {
	b := []byte{version, 0}
	if e.done {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.known)))
	for _, k := range e.keys() {
		en := e.known[k]
		b = binary.BigEndian.AppendUint16(b, uint16(len(k.Topic)))
		b = append(b, k.Topic...)
		b = binary.BigEndian.AppendUint32(b, uint32(k.Partition))
		b = append(b, en.topicID[:]...)
		if en.pending == nil {
			b = binary.BigEndian.AppendUint32(b, 0)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(en.pending.State)))
		b = append(b, en.pending.State...)
	}
	return b
}

var errState = errors.New("state is not valid")

func (e *Core) restore(b []byte) error {
	if len(b) < 6 {
		return errState
	}
	if b[0] != version {
		return fmt.Errorf("version %d is not known to this build (it knows %d)", b[0], version)
	}
	e.done = b[1] == 1
	n := binary.BigEndian.Uint32(b[2:])
	b = b[6:]
	for range n {
		if len(b) < 2 {
			return errState
		}
		l := int(binary.BigEndian.Uint16(b))
		if len(b) < 2+l+24 {
			return errState
		}
		k := Key{Topic: string(b[2 : 2+l])}
		b = b[2+l:]
		k.Partition = int32(binary.BigEndian.Uint32(b))
		en := &entry{}
		copy(en.topicID[:], b[4:20])
		l = int(binary.BigEndian.Uint32(b[20:]))
		b = b[24:]
		if l < 0 || len(b) < l {
			return errState
		}
		if l > 0 {
			en.pending = &connector.Split{ID: k.String(), State: slices.Clone(b[:l])}
			b = b[l:]
		}
		e.known[k] = en
	}
	if len(b) != 0 {
		return errState
	}
	return nil
}
