package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetcher owns a reader's client and goroutines: one polls the client, one carries out orders that wait for the cluster (adding
// partitions, out of range), one commits offsets. What they find comes back to the task's goroutine as fetches and events.
type fetcher struct {
	cfg  *sourceConfig
	log  zerolog.Logger
	cl   *kgo.Client
	adm  *kadm.Client
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	fetches chan kgo.Fetches
	wake    chan struct{}
	orders  *queue
	commits *queue
	// Commits outlive ctx, which ends with the task: what the last checkpoint covers is committed before close returns, within a bound.
	commitCtx  context.Context
	stopCommit context.CancelFunc
	committed  chan struct{} // closed when nothing is left to commit

	mu     sync.Mutex
	events []event
}

// event tells the reader what became of a split.
type event struct {
	tp      TopicPartition
	err     error    // fatal
	drop    bool     // the split is gone
	resume  bool     // go on where it is
	reset   bool     // go on at offset, in topicID
	offset  int64    //
	topicID [16]byte // zero: unchanged
}

func newFetcher(ctx context.Context, cfg *sourceConfig, log zerolog.Logger, subtask int) (*fetcher, error) {
	opts := []kgo.Opt{
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxBytes(16 << 20),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if cfg.readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if cfg.bounded {
		// The last offset of a partition may be a transaction marker: without it the end would never be seen.
		opts = append(opts, kgo.KeepControlRecords())
	}
	cl, err := cfg.newClient(log, fmt.Sprintf("source-%d", subtask), opts...)
	if err != nil {
		return nil, err
	}
	f := &fetcher{
		cfg: cfg, log: log, cl: cl, adm: kadm.NewClient(cl),
		fetches: make(chan kgo.Fetches, 1), wake: make(chan struct{}, 1),
	}
	f.ctx, f.stop = context.WithCancel(ctx)
	f.commitCtx, f.stopCommit = context.WithCancel(context.WithoutCancel(ctx))
	f.committed = make(chan struct{})
	f.orders, f.commits = newQueue(), newQueue()
	f.wg.Go(f.poll)
	f.wg.Go(func() { f.orders.run(f.ctx) })
	f.wg.Go(func() {
		defer close(f.committed)
		f.commits.run(f.ctx)
		f.commits.drain(f.commitCtx)
	})
	return f, nil
}

// lastCommit is how long close waits for a commit that is under way. Without one it does not wait.
const lastCommit = 2 * time.Second

func (f *fetcher) close() {
	f.stop()
	t := time.NewTimer(lastCommit)
	defer t.Stop()
	select {
	case <-f.committed:
	case <-t.C:
	}
	f.stopCommit()
	f.cl.Close()
	f.wg.Wait()
}

func (f *fetcher) poll() {
	for {
		fs := f.cl.PollFetches(f.ctx)
		if f.ctx.Err() != nil || fs.IsClientClosed() {
			return
		}
		if len(fs) == 0 {
			continue
		}
		select {
		case f.fetches <- fs:
			f.notify()
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *fetcher) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) post(ev ...event) {
	f.mu.Lock()
	f.events = append(f.events, ev...)
	f.mu.Unlock()
	f.notify()
}

func (f *fetcher) takeEvents() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	ev := f.events
	f.events = nil
	return ev
}

func (f *fetcher) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, f.cfg.connectTimeout)
}

// add starts consuming splits, after their topics' ids were compared with those they were read from before.
func (f *fetcher) add(splits []split) {
	f.orders.push(func() {
		ctx, cancel := f.bounded()
		defer cancel()
		details, err := f.details(ctx, splits)
		if err != nil {
			f.post(event{err: err})
			return
		}
		plain := splits[:0:0]
		recreated := map[string][]split{}
		for _, s := range splits {
			d, known := details[s.topic]
			_, exists := d.Partitions[s.partition]
			switch {
			case f.cfg.dropRemoved && (!f.subscribed(s.topic) || !known || !exists):
				f.log.Warn().Str("topic", s.topic).Int32("partition", s.partition).Int64("offset", s.offset).
					Msg("restored partition is dropped: it is no longer subscribed or no longer exists")
				f.post(event{tp: s.tp(), drop: true})
			case known && differ(s.topicID, d.ID):
				recreated[s.topic] = append(recreated[s.topic], s)
			default:
				if !exists {
					f.log.Warn().Str("topic", s.topic).Int32("partition", s.partition).Int64("offset", s.offset).
						Msg("restored partition is not in the cluster's metadata; its offset is kept and used when it appears")
				}
				plain = append(plain, s)
			}
		}
		f.consume(plain)
		for topic, ss := range recreated {
			f.resetRecreated(ctx, topic, details[topic].ID, ss)
		}
	})
}

func differ(a, b [16]byte) bool { return a != b && a != [16]byte{} && b != [16]byte{} }

func (f *fetcher) subscribed(topic string) bool {
	if f.cfg.pattern != nil {
		return f.cfg.pattern.MatchString(topic)
	}
	for _, t := range f.cfg.topics {
		if t == topic {
			return true
		}
	}
	return false
}

func (f *fetcher) details(ctx context.Context, splits []split) (kadm.TopicDetails, error) {
	var topics []string
	seen := map[string]bool{}
	for _, s := range splits {
		if !seen[s.topic] {
			seen[s.topic] = true
			topics = append(topics, s.topic)
		}
	}
	md, err := f.adm.Metadata(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("kafka: read metadata of the topics to read: %w", err)
	}
	for t, d := range md.Topics {
		if d.Err != nil {
			if errors.Is(d.Err, kerr.TopicAuthorizationFailed) {
				return nil, fmt.Errorf("kafka: topic %q: %w: grant DESCRIBE and READ on it", t, d.Err)
			}
			delete(md.Topics, t)
		}
	}
	return md.Topics, nil
}

func (f *fetcher) consume(splits []split) {
	if len(splits) == 0 {
		return
	}
	m := map[string]map[int32]kgo.Offset{}
	for _, s := range splits {
		if m[s.topic] == nil {
			m[s.topic] = map[int32]kgo.Offset{}
		}
		m[s.topic][s.partition] = kgo.NoResetOffset().At(s.offset).WithEpoch(s.epoch)
	}
	f.cl.AddConsumePartitions(m)
}

// remove stops consuming a partition that was read to its end.
func (f *fetcher) remove(tp TopicPartition) {
	f.orders.push(func() { f.cl.RemoveConsumePartitions(map[string][]int32{tp.Topic: {tp.Partition}}) })
}

// OffsetError says that the offset to read is not in the log.
type OffsetError struct {
	TopicPartition
	Wanted   int64
	Earliest int64
	Latest   int64
	Cause    error
}

func (e *OffsetError) Error() string {
	held := fmt.Sprintf("%d to %d", e.Earliest, e.Latest)
	if e.Earliest == noOffset {
		held = fmt.Sprintf("up to %d of what was read", e.Latest)
	}
	return fmt.Sprintf("kafka: partition %v: offset %d is not available, the log holds %s (%v). "+
		"Restore a state whose offsets exist, or set kafka.OnOffsetOutOfRange(kafka.Earliest) or (kafka.Latest) to go on there",
		e.TopicPartition, e.Wanted, held, e.Cause)
}

func (e *OffsetError) Unwrap() error { return e.Cause }

// outOfRange finds out what the log holds and applies the policy.
func (f *fetcher) outOfRange(s split, cause error) {
	f.orders.push(func() {
		ctx, cancel := f.bounded()
		defer cancel()
		first, err1 := f.offsetOf(ctx, s.tp(), Earliest)
		last, err2 := f.offsetOf(ctx, s.tp(), Latest)
		if err := errors.Join(err1, err2); err != nil {
			f.post(event{err: fmt.Errorf("kafka: partition %v: offset %d is not available (%w), and the available ones could not be listed: %w", s.tp(), s.offset, cause, err)})
			return
		}
		if s.offset >= first && s.offset <= last {
			// The client reports the error with each fetch until the partition is removed: this one is old news.
			f.cl.RemoveConsumePartitions(map[string][]int32{s.topic: {s.partition}})
			f.post(event{tp: s.tp(), resume: true})
			f.consume([]split{s})
			return
		}
		policy := f.cfg.onOutOfRange
		if policy == NoReset && s.flags&splitFromStart != 0 && s.offset < first {
			policy = Earliest // retention moved the beginning that was asked for: nothing that could be read is lost
		}
		to := first
		switch policy {
		case NoReset:
			f.post(event{err: &OffsetError{s.tp(), s.offset, first, last, cause}})
			return
		case Latest:
			to = last
		}
		f.log.Warn().Str("topic", s.topic).Int32("partition", s.partition).Int64("wanted", s.offset).Int64("earliest", first).
			Int64("latest", last).Int64("offset", to).AnErr("cause", cause).Msg("offset is not available; going on elsewhere, as set")
		f.cl.RemoveConsumePartitions(map[string][]int32{s.topic: {s.partition}})
		s.offset, s.epoch = to, -1
		f.post(event{tp: s.tp(), reset: true, offset: to})
		f.consume([]split{s})
	})
}

func (f *fetcher) offsetOf(ctx context.Context, tp TopicPartition, r Reset) (int64, error) {
	fn := f.adm.ListStartOffsets
	if r == Latest {
		fn = f.adm.ListEndOffsets
	}
	lo, err := fn(ctx, tp.Topic)
	if err != nil {
		return 0, err
	}
	o, ok := lo.Lookup(tp.Topic, tp.Partition)
	if !ok {
		return 0, kerr.UnknownTopicOrPartition
	}
	return o.Offset, o.Err
}

// unknownTopicID is called when brokers no longer know the topic id that is read: the topic was deleted, and maybe created again.
func (f *fetcher) unknownTopicID(topic string, splits []split) {
	f.orders.push(func() {
		ctx, cancel := f.bounded()
		defer cancel()
		details, err := f.details(ctx, splits)
		if err != nil {
			f.post(event{err: err})
			return
		}
		d, ok := details[topic]
		switch {
		case !ok:
			f.post(event{err: fmt.Errorf("kafka: topic %q was deleted while it was read: create it again or take it out of the source", topic)})
		case len(splits) > 0 && differ(splits[0].topicID, d.ID):
			f.resetRecreated(ctx, topic, d.ID, splits)
		default: // a broker that lags behind: start over
			f.cl.PurgeTopicsFromConsuming(topic)
			for _, s := range splits {
				f.post(event{tp: s.tp(), resume: true})
			}
			f.consume(splits)
		}
	})
}

func (f *fetcher) resetRecreated(ctx context.Context, topic string, id [16]byte, splits []split) {
	if f.cfg.onOutOfRange == NoReset {
		s := splits[0]
		f.post(event{err: recreatedError(s.tp(), s.topicID, id, s.offset)})
		return
	}
	f.cl.PurgeTopicsFromConsuming(topic)
	var again []split
	for _, s := range splits {
		o, err := f.offsetOf(ctx, s.tp(), f.cfg.onOutOfRange)
		if err != nil {
			f.post(event{err: fmt.Errorf("kafka: topic %q was created again; list offsets of partition %d: %w", topic, s.partition, err)})
			return
		}
		f.log.Warn().Str("topic", topic).Int32("partition", s.partition).Int64("wanted", s.offset).Int64("offset", o).
			Msg("topic was deleted and created again; going on in the new one, as set")
		f.post(event{tp: s.tp(), reset: true, offset: o, topicID: id})
		s.offset, s.epoch, s.topicID = o, -1, id
		again = append(again, s)
	}
	f.consume(again)
}

// queue runs functions one after the other. Pushing never blocks.
type queue struct {
	mu    sync.Mutex
	fns   []func()
	ready chan struct{}
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

func (q *queue) push(fn func()) {
	q.mu.Lock()
	q.fns = append(q.fns, fn)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// replace drops what waits and pushes fn.
func (q *queue) replace(fn func()) {
	q.mu.Lock()
	q.fns = q.fns[:0]
	q.mu.Unlock()
	q.push(fn)
}

func (q *queue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.ready:
		}
		q.drain(ctx)
	}
}

// drain runs what is there.
func (q *queue) drain(ctx context.Context) {
	for ctx.Err() == nil {
		q.mu.Lock()
		if len(q.fns) == 0 {
			q.mu.Unlock()
			return
		}
		fn := q.fns[0]
		q.fns = q.fns[1:]
		q.mu.Unlock()
		fn()
	}
}
