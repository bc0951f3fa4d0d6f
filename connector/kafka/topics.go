package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a topic's deletion means for the sink. A transaction's records are where they were written: when the topic is deleted they are gone,
// and a topic that is created under the name afterwards does not have them, whatever the coordinator answers to EndTxn (it commits what is
// left, which is nothing). The id that the cluster gives each topic tells the two apart:
//
//  1. The pool learns a topic's id before the first record goes there, and asks again at each barrier, when all records are acknowledged. The
//     same id twice says that all of them are in that topic; the barrier fails on another one, and the restart writes the records again.
//  2. The id is part of the committable. Before a transaction is committed, the topics must still have their ids; else LostTransactionError.
//  3. After a restart the coordinator is asked first: when it says that the transaction was committed, it was so while the topics were there,
//     because of 2, and nothing was lost by it. So that it can say so, no id of a committable that a restart may find is used again before
//     (txnPool.thaw), and none that has ended is fenced (txnAdmin.release).

// topicState is what the brokers say of a topic.
type topicState struct {
	id         topicID
	partitions int
	missing    bool  // there is no such topic
	err        error // it cannot be told
}

// describeTopics asks for topics by their names. The answer has all of them.
func (a *txnAdmin) describeTopics(ctx context.Context, names []string) (map[string]topicState, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, rt)
	}
	out := map[string]topicState{}
	if len(names) == 0 { // which would ask for all there are
		return out, nil
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, fmt.Errorf("kafka: read metadata of topics %s: %w", strings.Join(names, ","), err)
	}
	for _, n := range names {
		out[n] = topicState{err: fmt.Errorf("kafka: topic %q: the brokers did not answer for it", n)}
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		s := topicState{id: t.TopicID, partitions: len(t.Partitions)}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			s.missing = true
		case err != nil:
			s.err = fmt.Errorf("kafka: topic %q: %w", *t.Topic, err)
		}
		out[*t.Topic] = s
	}
	return out, nil
}

// topicsOf are the names of the topics that a transaction wrote to.
func (c *committable) topicsOf() (names []string) {
	for _, s := range c.spans {
		if !slices.Contains(names, s.topic) {
			names = append(names, s.topic)
		}
	}
	return names
}

// without is c less what it wrote to some topics.
func (c *committable) without(topics []string) committable {
	rest := *c
	rest.spans = nil
	for _, s := range c.spans {
		if !slices.Contains(topics, s.topic) {
			rest.spans = append(rest.spans, s)
		}
	}
	return rest
}

const (
	// A broker may be behind the others with what it knows of topics: what it says must hold for a while before a transaction is given up.
	replacedFor = time.Second
	// deletedFor is the time for which a topic is waited for that nobody knows; at most the connect timeout.
	deletedFor = 30 * time.Second
)

// topicWatch finds out whether what a transaction wrote to is still there.
type topicWatch struct {
	a     *txnAdmin
	c     *committable
	since time.Time // the first answer in a row by which something is gone
}

// gone asks once. It returns the topics whose records are lost and why, when that is certain; err says that it must be asked again.
func (w *topicWatch) gone(ctx context.Context) (topics []string, reason string, err error) {
	now, err := w.a.describeTopics(ctx, w.c.topicsOf())
	if err != nil {
		return nil, "", err
	}
	var reasons []string
	lose := func(topic, why string) {
		if !slices.Contains(topics, topic) {
			topics, reasons = append(topics, topic), append(reasons, why)
		}
	}
	deleted := false
	var unnamed []span // of topics whose id was not noted
	for _, s := range w.c.spans {
		switch t := now[s.topic]; {
		case errors.Is(t.err, kerr.TopicAuthorizationFailed): // it cannot be seen, so nothing is said against it
		case t.missing:
			deleted = true
			lose(s.topic, fmt.Sprintf("topic %q was deleted", s.topic))
		case t.err != nil && !kerr.IsRetriable(t.err):
			return nil, "", t.err
		case s.topicID != topicID{} && t.id != topicID{}:
			if s.topicID != t.id {
				lose(s.topic, fmt.Sprintf("topic %q was deleted and created again (its id was %v and is %v)", s.topic, s.topicID, t.id))
			}
		case t.err != nil:
			return nil, "", t.err
		case int(s.partition) >= t.partitions:
			lose(s.topic, fmt.Sprintf("topic %q was deleted and created again (it has %d partitions now, and partition %d was written to)", s.topic, t.partitions, s.partition))
		default:
			unnamed = append(unnamed, s)
		}
	}
	short, err := w.short(ctx, unnamed)
	if err != nil {
		return nil, "", err
	}
	for _, s := range short {
		lose(s.topic, fmt.Sprintf("topic %q was deleted and created again, or its log was cut (partition %d ends before offset %d, which was acknowledged)", s.topic, s.partition, s.last))
	}
	if len(topics) == 0 {
		w.since = time.Time{}
		return nil, "", nil
	}
	wait := replacedFor
	if deleted {
		wait = min(deletedFor, w.a.cfg.connectTimeout)
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if time.Since(w.since) < wait {
		return nil, "", fmt.Errorf("%s; asking again", strings.Join(reasons, ", "))
	}
	return topics, strings.Join(reasons, ", "), nil
}

// short returns the spans whose partition ends at or below their last offset: where the topic's id is not known, the only sign that it is
// another one.
func (w *topicWatch) short(ctx context.Context, spans []span) (out []span, err error) {
	if len(spans) == 0 {
		return nil, nil
	}
	rest := committable{spans: spans}
	ends, err := w.a.adm.ListEndOffsets(ctx, rest.topicsOf()...)
	if err != nil {
		return nil, err
	}
	for _, s := range spans {
		end, ok := ends.Lookup(s.topic, s.partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("kafka: list the end offset of %s-%d: the brokers did not answer for it", s.topic, s.partition)
		case end.Err != nil:
			return nil, fmt.Errorf("kafka: list the end offset of %s-%d: %w", s.topic, s.partition, end.Err)
		case end.Offset <= s.last:
			out = append(out, s)
		}
	}
	return out, nil
}

// learn notes the id of a topic before the first record goes there. What cannot be found out now is learnt at the first barrier.
func (p *txnPool) learn(ctx context.Context, topic string) {
	p.mu.Lock()
	_, known := p.topics[topic]
	p.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.connectTimeout)
	defer cancel()
	now, err := p.admin.describeTopics(ctx, []string{topic})
	if err != nil {
		p.log.Debug().Err(err).Str("topic", topic).Msg("the topic's id is not known yet")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topics[strings.Clone(topic)] = now[topic].id
}

// identify puts the ids of the topics into a transaction whose records are all acknowledged. Error: a topic is another one by now.
func (p *txnPool) identify(ctx context.Context, c *committable) error {
	if len(c.spans) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.connectTimeout)
	defer cancel()
	now, err := p.admin.describeTopics(ctx, c.topicsOf())
	if err != nil { // the commit asks again
		p.log.Debug().Err(err).Str("transactional_id", c.id).Msg("the ids of the topics of a transaction were not checked")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, t := range now {
		switch known := p.topics[topic]; {
		case t.id == topicID{}:
		case known == topicID{}:
			p.topics[strings.Clone(topic)] = t.id
		case known != t.id:
			return fmt.Errorf("kafka: topic %q was deleted and created again (its id was %v and is %v) while transaction %q wrote to it: "+
				"the job goes back to its last checkpoint and writes the records since into the new topic", topic, known, t.id, c.id)
		}
	}
	for i := range c.spans {
		c.spans[i].topicID = p.topics[c.spans[i].topic]
	}
	return nil
}
