package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// committable names a transaction whose records are all acknowledged and that waits for its checkpoint.
//
// Wire form, version 2: version u8, then with unsigned varints: id length, id, producer id, epoch, sequence, checkpoint id, number of topics,
// per topic: length, name, 16 bytes of the topic's id in the cluster (zeros: not known), number of spans, and per span: index of its topic,
// partition, first offset, last offset. Version 1, which is still read, has no topics; its spans begin with length and name of the topic.
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
	topicID     topicID
	partition   int32
	first, last int64
}

// topicID tells a topic from one that was created under its name after it was deleted. Zero: not known (version 1, brokers before 2.8).
type topicID [16]byte

func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) } // as Kafka's tools print it

const committableVersion = 2

func (c *committable) encode() []byte {
	b := make([]byte, 0, 64+len(c.id)+len(c.spans)*48)
	b = append(b, committableVersion)
	b = appendString(b, c.id)
	b = binary.AppendUvarint(b, uint64(c.producerID))
	b = binary.AppendUvarint(b, uint64(uint16(c.epoch)))
	b = binary.AppendUvarint(b, c.seq)
	b = binary.AppendUvarint(b, uint64(c.checkpoint))
	type topic struct {
		name string
		id   topicID
	}
	var topics []topic
	index := map[topic]int{}
	for _, s := range c.spans {
		t := topic{s.topic, s.topicID}
		if _, ok := index[t]; !ok {
			index[t] = len(topics)
			topics = append(topics, t)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(topics)))
	for _, t := range topics {
		b = append(appendString(b, t.name), t.id[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(c.spans)))
	for _, s := range c.spans {
		b = binary.AppendUvarint(b, uint64(index[topic{s.topic, s.topicID}]))
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

func (d *decoder) topicID() (id topicID) {
	if len(d.b) < len(id) {
		d.bad, d.b = true, nil
		return id
	}
	d.b = d.b[copy(id[:], d.b):]
	return id
}

// count is the number of things that follow, each of which takes at least a byte.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func decodeCommittable(b []byte) (committable, error) {
	if len(b) == 0 {
		return committable{}, errCommittable
	}
	version := b[0]
	if version < 1 || version > committableVersion {
		return committable{}, fmt.Errorf("kafka: committable has version %d, this build knows 1 to %d", version, committableVersion)
	}
	d := decoder{b: b[1:]}
	c := committable{id: d.string(), producerID: int64(d.uvarint()), epoch: int16(d.uvarint()), seq: d.uvarint(), checkpoint: int64(d.uvarint())}
	var topics []span
	if version >= 2 {
		for range d.count() {
			if d.bad {
				return committable{}, errCommittable
			}
			topics = append(topics, span{topic: d.string(), topicID: d.topicID()})
		}
	}
	for range d.count() {
		if d.bad {
			return committable{}, errCommittable
		}
		var s span
		if version == 1 {
			s.topic = d.string()
		} else if i := d.uvarint(); i < uint64(len(topics)) {
			s = topics[i]
		} else {
			return committable{}, errCommittable
		}
		s.partition, s.first, s.last = int32(d.uvarint()), int64(d.uvarint()), int64(d.uvarint())
		c.spans = append(c.spans, s)
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

// LostTransactionError says that the records of a transaction of a completed checkpoint are lost: the brokers aborted it before it could be
// committed, or a topic that it wrote to was deleted, or deleted and created again.
type LostTransactionError struct {
	TransactionalID string
	Topics          []TopicPartition // what the transaction wrote to
	// Deleted are the topics of these whose records went with the topic; none when the brokers aborted the transaction.
	Deleted []string
	detail  string
	reason  string
	prefix  string
}

func (e *LostTransactionError) Error() string {
	const restore = "restore a checkpoint or savepoint from before it, which writes the records again"
	if len(e.Deleted) > 0 {
		return fmt.Sprintf("kafka: %s: %s, and the transaction's records there are LOST. Ways out: %s; or accept the loss with kafka.AcceptLostTransactions(), "+
			"and the job goes on in the topic as it is now", e.detail, e.reason, restore)
	}
	uses := fmt.Sprintf("uses the transactional id prefix %q", e.prefix)
	if e.prefix == "" {
		uses = "has used the transactional id"
	}
	return fmt.Sprintf("kafka: %s was aborted by the brokers before it could be committed, its records are LOST: "+
		"the outage was longer than kafka.TransactionTimeout, or another application %s. "+
		"Ways out: %s (and reset readers of what was committed since); "+
		"or accept the loss with kafka.AcceptLostTransactions(); and raise kafka.TransactionTimeout (and the brokers' transaction.max.timeout.ms)", e.detail, uses, restore)
}

// Fatal says that no restart heals it: each would find the same transaction aborted, or the same topic gone.
func (e *LostTransactionError) Fatal() bool { return true }

func lostError(c *committable, prefix string) *LostTransactionError {
	e := &LostTransactionError{TransactionalID: c.id, detail: c.describe(), prefix: prefix}
	for _, s := range c.spans {
		e.Topics = append(e.Topics, TopicPartition{s.topic, s.partition})
	}
	return e
}
