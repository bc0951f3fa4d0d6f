package eos

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// CollectOptions say what to read into a history after a run.
type CollectOptions struct {
	Spec        Spec
	Input       string // topic
	Output      string // topic
	DeadLetter  string // topic; empty: none
	Prefix      string // of the transactional ids; empty: checks 5 and 6 do without the ids
	Parallelism int
	Pool        int // transactional ids per subtask, 3 when 0
	Group       string
	// Settle is how long to wait for the last stable offset to reach the end, 30 s when 0.
	Settle time.Duration
	// Console is the output of Kafka's console consumer to use instead of an own reader; see ReadConsole.
	Console io.Reader
}

// Collect reads what a run left behind: the input, the output as readers with read_committed see it, the output's log with its markers, the
// ends, the transactional ids, the group's offsets.
func (c Cluster) Collect(ctx context.Context, o CollectOptions) (*History, error) {
	if err := o.Spec.Validate(); err != nil {
		return nil, err
	}
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	h := &History{}
	spec := o.Spec
	pool := o.Pool
	if pool == 0 {
		pool = 3
	}
	h.Add(Event{Kind: KindSpec, Spec: &spec}, Event{Kind: KindRun, Prefix: o.Prefix, Parallelism: o.Parallelism, Pool: pool})
	// The ends first: the time they need counts from now.
	if err := collectEnds(ctx, adm, h, o); err != nil {
		return h, err
	}
	if o.Prefix != "" {
		l, err := adm.ListTransactions(ctx, nil, nil)
		if err != nil {
			return h, fmt.Errorf("eos: list transactions: %w", err)
		}
		for _, t := range l.Sorted() {
			if strings.HasPrefix(t.TxnID, o.Prefix) {
				h.Add(Event{Kind: KindTxn, ID: t.TxnID, State: t.State, ProducerID: t.ProducerID})
			}
		}
	}
	if o.Group != "" {
		os, err := adm.FetchOffsets(ctx, o.Group)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return h, fmt.Errorf("eos: read offsets of group %s: %w", o.Group, err)
		}
		now := time.Now().UTC()
		os.Each(func(r kadm.OffsetResponse) {
			if r.Topic == o.Input && r.At >= 0 {
				h.Add(Event{Kind: KindGroup, At: now, Partition: r.Partition, Offset: r.At})
			}
		})
	}
	if err := c.scan(ctx, o.Input, false, func(r *kgo.Record) {
		if !r.Attrs.IsControl() {
			h.Add(Event{Kind: KindIn, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: string(r.Value)})
		}
	}); err != nil {
		return h, err
	}
	if err := c.scan(ctx, o.Output, false, func(r *kgo.Record) { h.Add(logEvent(r)) }); err != nil {
		return h, err
	}
	if o.DeadLetter != "" {
		var bad error
		if err := c.scan(ctx, o.DeadLetter, false, func(r *kgo.Record) {
			e, err := deadEvent(r)
			h.Add(e)
			bad = errors.Join(bad, err)
		}); err != nil || bad != nil {
			return h, errors.Join(err, bad)
		}
	}
	if o.Console != nil {
		evs, err := ReadConsole(o.Console)
		h.Add(evs...)
		return h, err
	}
	return h, c.scan(ctx, o.Output, true, func(r *kgo.Record) {
		if !r.Attrs.IsControl() {
			h.Add(Event{Kind: KindOut, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: string(r.Value)})
		}
	})
}

// Ends are the ends of a topic's partitions.
func (c Cluster) Ends(ctx context.Context, topic string) (map[int32]int64, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("eos: list ends of %s: %w", topic, err)
	}
	ends := map[int32]int64{}
	for p, e := range listed[topic] {
		ends[p] = e.Offset
	}
	return ends, nil
}

// deadEvent reads the headers "partition" and "offset" of a dead letter.
func deadEvent(r *kgo.Record) (Event, error) {
	e := Event{Kind: KindDead, Partition: -1, Offset: -1, Key: string(r.Key), Value: string(r.Value)}
	for _, h := range r.Headers {
		v, err := strconv.ParseInt(string(h.Value), 10, 64)
		switch {
		case h.Key != "partition" && h.Key != "offset":
		case err != nil:
			return e, fmt.Errorf("eos: dead letter at partition %d offset %d: header %s is %q", r.Partition, r.Offset, h.Key, h.Value)
		case h.Key == "partition":
			e.Partition = int32(v)
		default:
			e.Offset = v
		}
	}
	return e, nil
}

func logEvent(r *kgo.Record) Event {
	e := Event{
		Kind: KindRaw, Partition: r.Partition, Offset: r.Offset, ProducerID: r.ProducerID, Epoch: r.ProducerEpoch,
		InTxn: r.Attrs.IsTransactional(), Key: string(r.Key), Value: string(r.Value),
	}
	if r.Attrs.IsControl() {
		// Kafka's control records: key is version int16, type int16 (0 abort, 1 commit).
		e.Kind, e.Key, e.Value = KindMarker, "", ""
		e.Commit = len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1
	}
	return e
}

func collectEnds(ctx context.Context, adm *kadm.Client, h *History, o CollectOptions) error {
	settle := o.Settle
	if settle == 0 {
		settle = 30 * time.Second
	}
	begin := time.Now()
	lagged := map[int32]time.Duration{} // how long the offset is known to have lagged: an answer that is slow to come proves nothing
	for {
		waited := time.Since(begin)
		ends, err := adm.ListEndOffsets(ctx, o.Output)
		if err != nil {
			return fmt.Errorf("eos: list ends of %s: %w", o.Output, err)
		}
		stable, err := adm.ListCommittedOffsets(ctx, o.Output)
		if err != nil {
			return fmt.Errorf("eos: list last stable offsets of %s: %w", o.Output, err)
		}
		if len(ends[o.Output]) == 0 {
			return fmt.Errorf("eos: topic %s does not exist", o.Output)
		}
		all := true
		for p, e := range ends[o.Output] {
			s, _ := stable.Lookup(o.Output, p)
			if s.Offset < e.Offset {
				all, lagged[p] = false, waited
			}
		}
		if !all && waited < settle {
			if err := sleepUntil(ctx, time.Now().Add(50*time.Millisecond)); err != nil {
				return err
			}
			continue
		}
		for _, e := range ends.Offsets().Sorted() {
			s, _ := stable.Lookup(o.Output, e.Partition)
			h.Add(Event{Kind: KindEnd, Partition: e.Partition, Offset: e.At, Stable: s.Offset, WaitedMS: lagged[e.Partition].Milliseconds()})
		}
		return nil
	}
}

// scan reads a topic from its beginning to its present end (the last stable offset when committed), control records included.
func (c Cluster) scan(ctx context.Context, topic string, committed bool, fn func(*kgo.Record)) error {
	opts := []kgo.Opt{kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200 * time.Millisecond)}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := c.client(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	begin, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("eos: list beginnings of %s: %w", topic, err)
	}
	list := adm.ListEndOffsets
	if committed {
		list = adm.ListCommittedOffsets
	}
	end, err := list(ctx, topic)
	if err != nil {
		return fmt.Errorf("eos: list ends of %s: %w", topic, err)
	}
	left, from := map[int32]int64{}, map[int32]kgo.Offset{}
	for p, e := range end[topic] {
		if e.Err != nil {
			return fmt.Errorf("eos: list end of %s-%d: %w", topic, p, e.Err)
		}
		if b, _ := begin.Lookup(topic, p); e.Offset > b.Offset {
			left[p], from[p] = e.Offset, kgo.NewOffset().At(b.Offset)
		}
	}
	if len(end[topic]) == 0 {
		return fmt.Errorf("eos: topic %s does not exist", topic)
	}
	if len(left) == 0 {
		return nil
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	idle := 0
	for len(left) > 0 {
		pctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		fs := cl.PollFetches(pctx)
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("eos: read %s: %w", topic, ctx.Err())
		}
		for _, e := range fs.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) && !kerr.IsRetriable(e.Err) {
				return fmt.Errorf("eos: read %s-%d: %w", topic, e.Partition, e.Err)
			}
		}
		if fs.NumRecords() == 0 {
			if idle++; idle == 6 {
				return fmt.Errorf("eos: read %s: no records for a minute, ends not reached: %v", topic, left)
			}
			continue
		}
		idle = 0
		fs.EachRecord(func(r *kgo.Record) {
			e, ok := left[r.Partition]
			if !ok || r.Offset >= e {
				return
			}
			fn(r)
			if r.Offset == e-1 {
				delete(left, r.Partition)
			}
		})
	}
	return nil
}

// ReadConsole reads the output of Kafka's console consumer, started with
//
//	--isolation-level read_committed --from-beginning --property print.partition=true --property print.offset=true --property print.key=true
//
// (tab separated). Lines without partition and offset get the line's number as offset in partition 0.
func ReadConsole(r io.Reader) ([]Event, error) {
	var out []Event
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for n := int64(0); sc.Scan(); n++ {
		line := sc.Text()
		if line == "" || strings.HasPrefix(line, "Processed a total of") {
			continue
		}
		e := Event{Kind: KindOut, Offset: n}
		var rest []string
		for _, f := range strings.Split(line, "\t") {
			name, num, ok := strings.Cut(f, ":")
			v, err := strconv.ParseInt(num, 10, 64)
			switch {
			case ok && err == nil && name == "Partition":
				e.Partition = int32(v)
			case ok && err == nil && name == "Offset":
				e.Offset = v
			case ok && err == nil && (name == "CreateTime" || name == "LogAppendTime"):
			default:
				rest = append(rest, f)
			}
		}
		switch len(rest) {
		case 1:
			e.Value = rest[0]
		case 2:
			e.Key, e.Value = rest[0], rest[1]
		default:
			return out, fmt.Errorf("eos: console output, line %d: %q is not key and value", n+1, line)
		}
		out = append(out, e)
	}
	if err := sc.Err(); err != nil {
		return out, fmt.Errorf("eos: console output: %w", err)
	}
	return out, nil
}
