package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// committable names a transaction whose records are all acknowledged and that waits for its checkpoint.
//
// Wire form, version 1: version u8, then with unsigned varints: id length, id, producer id, epoch, sequence, checkpoint id, number of spans,
// and per span: topic length, topic, partition, first offset, last offset.
type committable struct {
	id         string
	producerID int64
	epoch      int16
	seq        uint64 // the slot's count of transactions in this process; tells reuse apart where the epoch does not change
	checkpoint int64
	spans      []span
}

// span is what a transaction wrote to a partition. Offsets between first and last may belong to others.
type span struct {
	topic       string
	partition   int32
	first, last int64
}

const committableVersion = 1

func (c *committable) encode() []byte {
	b := make([]byte, 0, 64+len(c.id)+len(c.spans)*48)
	b = append(b, committableVersion)
	b = appendString(b, c.id)
	b = binary.AppendUvarint(b, uint64(c.producerID))
	b = binary.AppendUvarint(b, uint64(uint16(c.epoch)))
	b = binary.AppendUvarint(b, c.seq)
	b = binary.AppendUvarint(b, uint64(c.checkpoint))
	b = binary.AppendUvarint(b, uint64(len(c.spans)))
	for _, s := range c.spans {
		b = appendString(b, s.topic)
		b = binary.AppendUvarint(b, uint64(uint32(s.partition)))
		b = binary.AppendUvarint(b, uint64(s.first))
		b = binary.AppendUvarint(b, uint64(s.last))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errCommittable = errors.New("kafka: committable is not valid")

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func decodeCommittable(b []byte) (committable, error) {
	if len(b) == 0 {
		return committable{}, errCommittable
	}
	if b[0] != committableVersion {
		return committable{}, fmt.Errorf("kafka: committable has version %d, this build knows %d", b[0], committableVersion)
	}
	d := decoder{b: b[1:]}
	c := committable{id: d.string(), producerID: int64(d.uvarint()), epoch: int16(d.uvarint()), seq: d.uvarint(), checkpoint: int64(d.uvarint())}
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		return committable{}, errCommittable
	}
	for range n {
		c.spans = append(c.spans, span{topic: d.string(), partition: int32(d.uvarint()), first: int64(d.uvarint()), last: int64(d.uvarint())})
	}
	if d.bad || len(d.b) != 0 || c.id == "" || c.producerID < 0 || c.epoch < 0 {
		return committable{}, errCommittable
	}
	return c, nil
}

func (c *committable) describe() string {
	var parts []string
	for i, s := range c.spans {
		if i == 20 {
			parts = append(parts, fmt.Sprintf("and %d more partitions", len(c.spans)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s-%d offsets %d to %d", s.topic, s.partition, s.first, s.last))
	}
	return fmt.Sprintf("transaction %q (producer %d epoch %d, checkpoint %d, %s)", c.id, c.producerID, c.epoch, c.checkpoint, strings.Join(parts, ", "))
}

// LostTransactionError says that a transaction of a completed checkpoint was aborted by the brokers: its records are lost.
type LostTransactionError struct {
	TransactionalID string
	Topics          []TopicPartition
	detail          string
	prefix          string
}

func (e *LostTransactionError) Error() string {
	return fmt.Sprintf("kafka: %s was aborted by the brokers before it could be committed, its records are LOST: "+
		"the outage was longer than kafka.TransactionTimeout, or another application uses the transactional id prefix %q. "+
		"Ways out: restore a checkpoint or savepoint from before it, which writes the records again (and reset readers of what was committed since); "+
		"or accept the loss with kafka.AcceptLostTransactions(); and raise kafka.TransactionTimeout (and the brokers' transaction.max.timeout.ms)", e.detail, e.prefix)
}

// Fatal says that no restart heals it: each would find the same transaction aborted.
func (e *LostTransactionError) Fatal() bool { return true }

func lostError(c *committable, prefix string) *LostTransactionError {
	e := &LostTransactionError{TransactionalID: c.id, detail: c.describe(), prefix: prefix}
	for _, s := range c.spans {
		e.Topics = append(e.Topics, TopicPartition{s.topic, s.partition})
	}
	return e
}
