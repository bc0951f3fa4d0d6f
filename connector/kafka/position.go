package kafka

import (
	"fmt"
	"maps"
	"time"
)

// Reset says where to read when there is no usable offset.
type Reset int

const (
	// NoReset fails.
	NoReset Reset = iota
	// Earliest reads from the first offset in the log.
	Earliest
	// Latest reads from the end of the log.
	Latest
)

func (r Reset) String() string {
	switch r {
	case Earliest:
		return "earliest"
	case Latest:
		return "latest"
	default:
		return "none"
	}
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

type posKind int

const (
	posEarliest posKind = iota
	posLatest
	posCommitted
	posTimestamp
	posExplicit
)

// Position is where a source starts or ends in its partitions.
type Position struct {
	kind     posKind
	reset    Reset
	millis   int64
	explicit map[TopicPartition]int64
}

func (p Position) validate(what string) (errs []error) {
	if p.kind == posExplicit {
		for tp, o := range p.explicit {
			if o < 0 || tp.Topic == "" || tp.Partition < 0 {
				errs = append(errs, fmt.Errorf("kafka: %s offset %d of %v is not valid", what, o, tp))
			}
		}
	}
	if what == "end" && p.kind == posEarliest {
		errs = append(errs, fmt.Errorf("kafka: a source cannot end at the earliest offsets"))
	}
	return errs
}

func start(p Position) SourceOption { return sourceOption(func(c *sourceConfig) { c.start = p }) }

func stop(p Position) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.stop, c.bounded = p, true })
}

// StartEarliest starts a new job at the first offsets. The default.
func StartEarliest() SourceOption { return start(Position{kind: posEarliest}) }

// StartLatest starts a new job at the end of the partitions as they are when the job starts.
func StartLatest() SourceOption { return start(Position{kind: posLatest, reset: Latest}) }

// StartCommitted starts a new job at the offsets committed by the group; where there are none, reset decides (NoReset fails).
func StartCommitted(reset Reset) SourceOption {
	return start(Position{kind: posCommitted, reset: reset})
}

// StartTimestamp starts a new job at the first record whose timestamp is t or later; at the end where there is none.
func StartTimestamp(t time.Time) SourceOption {
	return start(Position{kind: posTimestamp, millis: t.UnixMilli(), reset: Latest})
}

// StartOffsets starts a new job at the given offsets; partitions that are not named start as reset says (NoReset fails).
func StartOffsets(offsets map[TopicPartition]int64, reset Reset) SourceOption {
	return start(Position{kind: posExplicit, explicit: maps.Clone(offsets), reset: reset})
}

// EndLatest makes the source bounded: it ends at the offsets found when the job starts (with ReadCommitted, the last stable offsets).
func EndLatest() SourceOption { return stop(Position{kind: posLatest}) }

// EndTimestamp makes the source bounded: each partition ends before its first record whose timestamp is t or later.
func EndTimestamp(t time.Time) SourceOption {
	return stop(Position{kind: posTimestamp, millis: t.UnixMilli()})
}

// EndOffsets makes the source bounded: each partition ends before the given offset; partitions that are not named end at the offsets
// found when the job starts.
func EndOffsets(offsets map[TopicPartition]int64) SourceOption {
	return stop(Position{kind: posExplicit, explicit: maps.Clone(offsets), reset: Latest})
}

// EndCommitted makes the source bounded: each partition ends at the offset committed by the group when the job starts.
func EndCommitted() SourceOption { return stop(Position{kind: posCommitted}) }
