package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/connector"
)

const (
	noOffset     = int64(-1)
	splitVersion = 1
	// splitFromStart: the split asked for the beginning and nothing was read yet, so a log start that moved meanwhile is no loss.
	splitFromStart = 1 << 0
)

// split is the position inside of one partition. Wire form, version 1, big endian: version u8, flags u8, topic id 16 bytes, partition
// i32, leader epoch i32, offset i64, stop i64, topic length u16, topic.
type split struct {
	topic     string
	partition int32
	topicID   [16]byte
	offset    int64 // next offset to read
	stop      int64 // exclusive; noOffset when unbounded
	epoch     int32 // leader epoch of the last record, -1 unknown
	flags     byte
}

func (s *split) id() string { return TopicPartition{s.topic, s.partition}.String() }

func (s *split) tp() TopicPartition { return TopicPartition{s.topic, s.partition} }

func (s *split) encode() connector.Split {
	b := make([]byte, 0, 44+len(s.topic))
	b = append(b, splitVersion, s.flags)
	b = append(b, s.topicID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(s.partition))
	b = binary.BigEndian.AppendUint32(b, uint32(s.epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(s.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(s.stop))
	b = binary.BigEndian.AppendUint16(b, uint16(len(s.topic)))
	b = append(b, s.topic...)
	return connector.Split{ID: s.id(), State: b}
}

var errShortSplit = errors.New("state is cut short")

func decodeSplit(cs connector.Split) (split, error) {
	b := cs.State
	if len(b) < 1 {
		return split{}, fmt.Errorf("kafka: split %s: %w", cs.ID, errShortSplit)
	}
	if b[0] != splitVersion {
		return split{}, fmt.Errorf("kafka: split %s: version %d is not known to this build (it knows %d)", cs.ID, b[0], splitVersion)
	}
	if len(b) < 44 {
		return split{}, fmt.Errorf("kafka: split %s: %w", cs.ID, errShortSplit)
	}
	s := split{flags: b[1]}
	copy(s.topicID[:], b[2:18])
	s.partition = int32(binary.BigEndian.Uint32(b[18:]))
	s.epoch = int32(binary.BigEndian.Uint32(b[22:]))
	s.offset = int64(binary.BigEndian.Uint64(b[26:]))
	s.stop = int64(binary.BigEndian.Uint64(b[34:]))
	n := int(binary.BigEndian.Uint16(b[42:]))
	if len(b) != 44+n {
		return split{}, fmt.Errorf("kafka: split %s: %w", cs.ID, errShortSplit)
	}
	s.topic = string(b[44:])
	if s.topic == "" || s.partition < 0 || s.offset < 0 || s.stop < noOffset {
		return split{}, fmt.Errorf("kafka: split %s: state is not valid (offset %d, end %d)", cs.ID, s.offset, s.stop)
	}
	return s, nil
}
