package eos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Check is the result of one check.
type Check struct {
	Number  int      `json:"number"`
	Name    string   `json:"name"`
	Checked bool     `json:"checked"` // false: the history has no evidence
	Faults  int      `json:"faults"`
	Details []string `json:"details,omitempty"` // the first faults
	Note    string   `json:"note,omitempty"`
}

// Verdict is the result of a judgement.
type Verdict struct {
	OK       bool    `json:"ok"`
	Records  int64   `json:"records"`  // input records that count
	Windows  int     `json:"windows"`  // results expected
	Results  int     `json:"results"`  // results read
	Lost     int     `json:"lost"`     // expected and not there
	Repeated int     `json:"repeated"` // there more than once
	Wrong    int     `json:"wrong"`    // there with a wrong value
	Unasked  int     `json:"unasked"`  // there without input
	Checks   []Check `json:"checks"`
}

const maxDetails = 10

func (c *Check) fault(format string, args ...any) {
	c.Faults++
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, fmt.Sprintf(format, args...))
	}
}

type window struct {
	customer string
	start    int64 // ms
}

func (w window) String() string {
	return fmt.Sprintf("customer %s, window %s", w.customer, time.UnixMilli(w.start).UTC().Format(time.RFC3339))
}

func compareWindows(a, b window) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.customer, b.customer))
}

type sum struct{ cents, count int64 }

type place struct {
	partition int32
	offset    int64
}

func (e *Event) place() place { return place{e.Partition, e.Offset} }

func (p place) String() string { return fmt.Sprintf("partition %d offset %d", p.partition, p.offset) }

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
}

type judge struct {
	h       *History
	spec    *Spec
	v       *Verdict
	want    map[window]sum
	sent    map[window]sum // of sentinels: may be there
	results []result       // by place
}

type result struct {
	place
	total Total
	w     window
	e     *Event
}

// Judge judges a history.
func Judge(h *History) *Verdict {
	j := &judge{h: h, v: &Verdict{}, want: map[window]sum{}, sent: map[window]sum{}}
	if s := h.Of(KindSpec); len(s) > 0 {
		j.spec = s[len(s)-1].Spec
	}
	j.input()
	j.output()
	j.order()
	j.live()
	j.ends()
	j.ids()
	j.group()
	j.restores()
	j.operators()
	j.transactions()
	j.v.OK = j.spec != nil && h.Has(KindIn) && j.v.Checks[1].Checked
	for _, c := range j.v.Checks {
		if c.Faults > 0 {
			j.v.OK = false
		}
	}
	slices.SortStableFunc(j.v.Checks, func(a, b Check) int { return cmp.Compare(a.Number, b.Number) })
	return j.v
}

func (j *judge) add(c Check) { j.v.Checks = append(j.v.Checks, c) }

// input makes the reference from what the topic holds, and compares that with what the generator makes.
func (j *judge) input() {
	c := Check{Number: 0, Name: "input is what the generator made"}
	defer func() { j.add(c) }()
	if j.spec == nil || !j.h.Has(KindIn) {
		c.Note = "no spec or no input in the history"
		return
	}
	c.Checked = true
	size := j.spec.Window.Milliseconds()
	seen := map[place]bool{}
	values := map[string]int64{}
	for i := range j.h.Events {
		e := &j.h.Events[i]
		if e.Kind != KindIn {
			continue
		}
		p := e.place()
		if seen[p] {
			c.fault("%v is in the history twice", p)
			continue
		}
		seen[p] = true
		values[fmt.Sprintf("%d|%s", e.Partition, e.Value)]++
		var pu Purchase
		if err := json.Unmarshal([]byte(e.Value), &pu); err != nil {
			continue // malformed on purpose; compared below
		}
		ms := pu.At.UnixMilli()
		w := window{pu.Customer, ms - ms%size}
		m := j.want
		if strings.HasPrefix(pu.Customer, sentinelPrefix) {
			m = j.sent
		} else {
			j.v.Records++
		}
		s := m[w]
		s.cents += pu.Cents
		s.count++
		m[w] = s
	}
	j.v.Windows = len(j.want)
	for n := range j.spec.Records {
		k := fmt.Sprintf("%d|%s", j.spec.Partition(n), j.spec.Value(n))
		values[k]--
		if values[k] < 0 {
			c.fault("record %d (%s) is not in partition %d of the input", n, j.spec.Value(n), j.spec.Partition(n))
		}
	}
	for k, n := range values {
		if n > 0 && !strings.Contains(k, `"`+sentinelPrefix) {
			c.fault("the input has %d records %q that the generator did not make", n, k)
		}
	}
}

func parseTotal(e *Event) (Total, error) {
	var t Total
	dec := json.NewDecoder(bytes.NewReader([]byte(e.Value)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return t, err
	}
	if e.Key != t.Customer {
		return t, fmt.Errorf("key %q is not the customer", e.Key)
	}
	return t, nil
}

// output does checks 1 and 2.
func (j *judge) output() {
	once := Check{Number: 1, Name: "every window exactly once with the right value", Checked: j.spec != nil && j.h.Has(KindIn) && (j.h.Has(KindOut) || j.h.Has(KindEnd))}
	from := Check{Number: 2, Name: "no output without input", Checked: once.Checked}
	places := map[place]bool{}
	got := map[window]place{}
	for i := range j.h.Events {
		e := &j.h.Events[i]
		if e.Kind != KindOut {
			continue
		}
		j.v.Results++
		p := e.place()
		if places[p] {
			once.fault("%v was read twice", p)
		}
		places[p] = true
		t, err := parseTotal(e)
		if err != nil {
			from.fault("%v: %q is no result: %v", p, e.Value, err)
			j.v.Unasked++
			continue
		}
		w := window{t.Customer, t.Start.UnixMilli()}
		if j.spec != nil && t.End.Sub(t.Start) != j.spec.Window {
			once.fault("%v at %v: the window ends at %v", w, p, t.End)
		}
		want, ok := j.want[w]
		if !ok {
			want, ok = j.sent[w]
		}
		if !ok {
			from.fault("%v at %v has no input", w, p)
			j.v.Unasked++
		}
		if first, ok := got[w]; ok {
			once.fault("%v is there twice: at %v and at %v", w, first, p)
			j.v.Repeated++
		} else if ok := j.want[w] == (sum{t.Cents, t.Count}) || j.sent[w] == (sum{t.Cents, t.Count}); !ok && want != (sum{}) {
			once.fault("%v at %v is %d cents of %d, want %d of %d", w, p, t.Cents, t.Count, want.cents, want.count)
			j.v.Wrong++
		}
		if _, ok := got[w]; !ok {
			got[w] = p
		}
		j.results = append(j.results, result{p, t, w, e})
	}
	for _, w := range slices.SortedFunc(maps.Keys(j.want), compareWindows) {
		if _, ok := got[w]; !ok && once.Checked {
			once.fault("%v is lost (%d cents of %d)", w, j.want[w].cents, j.want[w].count)
			j.v.Lost++
		}
	}
	slices.SortFunc(j.results, func(a, b result) int { return comparePlaces(a.place, b.place) })
	j.add(once)
	j.add(from)
}

// order does check 3: by offset, the windows of a customer must rise. (A customer is in one partition.)
func (j *judge) order() {
	c := Check{Number: 3, Name: "windows of a customer in order", Checked: len(j.results) > 0}
	last := map[string]result{}
	for _, r := range j.results {
		prev, ok := last[r.w.customer]
		switch {
		case ok && prev.partition != r.partition:
			c.fault("customer %s is in partitions %d and %d", r.w.customer, prev.partition, r.partition)
		case ok && prev.w.start > r.w.start:
			c.fault("%v at %v comes after %v at %v", r.w, r.place, prev.w, prev.place)
		}
		last[r.w.customer] = r
	}
	j.add(c)
}

// live does check 4.
func (j *judge) live() {
	c := Check{Number: 4, Name: "concurrent reader saw nothing retracted or repeated"}
	final := map[place]*Event{}
	for _, r := range j.results {
		final[r.place] = r.e
	}
	next := map[int32]int64{}
	seen := map[window]place{}
	for i := range j.h.Events {
		e := &j.h.Events[i]
		if e.Kind != KindLive {
			continue
		}
		c.Checked = true
		p := e.place()
		if e.Offset < next[e.Partition] {
			c.fault("%v was seen after offset %d", p, next[e.Partition]-1)
		}
		next[e.Partition] = max(next[e.Partition], e.Offset+1)
		f := final[p]
		switch {
		case f == nil:
			c.fault("%v (%s) was seen and is gone", p, e.Value)
		case f.Value != e.Value || f.Key != e.Key:
			c.fault("%v was seen as %s and is %s", p, e.Value, f.Value)
		}
		if t, err := parseTotal(e); err == nil {
			w := window{t.Customer, t.Start.UnixMilli()}
			if first, ok := seen[w]; ok {
				c.fault("%v was seen at %v and at %v", w, first, p)
			}
			seen[w] = p
		}
	}
	j.add(c)
}

// stableLimit is how long after the job's end the last stable offset may lag.
const stableLimit = 2 * time.Second

// ends does check 5.
func (j *judge) ends() {
	c := Check{Number: 5, Name: "no open transaction after the job's end"}
	for _, e := range j.h.Of(KindEnd) {
		c.Checked = true
		if e.Stable < e.Offset {
			c.fault("partition %d: last stable offset %d is below the end %d", e.Partition, e.Stable, e.Offset)
		} else if e.WaitedMS > stableLimit.Milliseconds() {
			c.fault("partition %d: the last stable offset reached the end only after %d ms", e.Partition, e.WaitedMS)
		}
	}
	for _, e := range j.h.Of(KindTxn) {
		c.Checked = true
		if e.State == "Ongoing" || e.State == "PrepareCommit" || e.State == "PrepareAbort" {
			c.fault("transactional id %q is %s", e.ID, e.State)
		}
	}
	j.add(c)
}

// ids does check 6.
func (j *judge) ids() {
	c := Check{Number: 6, Name: "transactional ids within parallelism times pool"}
	runs, txns := j.h.Of(KindRun), j.h.Of(KindTxn)
	limit := 0
	for _, r := range runs {
		limit = max(limit, r.Parallelism*r.Pool)
	}
	if limit > 0 && len(txns) > 0 {
		c.Checked = true
		ids := map[string]bool{}
		for _, t := range txns {
			ids[t.ID] = true
		}
		if len(ids) > limit {
			c.fault("%d ids are in use, at most %d may be: %v", len(ids), limit, slices.Sorted(maps.Keys(ids)))
		}
	}
	j.add(c)
}

// restores does check 8: the results are those of all attempts together, so it fails with any of 1 to 4.
func (j *judge) restores() {
	faults := len(j.h.Of(KindFault))
	c := Check{Number: 8, Name: "1 to 4 hold over all attempts", Checked: j.v.Checks[1].Checked, Note: fmt.Sprintf("%d faults", faults)}
	for _, o := range j.v.Checks {
		if o.Number >= 1 && o.Number <= 4 && o.Faults > 0 {
			c.fault("check %d failed", o.Number)
		}
	}
	j.add(c)
}

type txn struct {
	pid   int64
	epoch int16
}

// transactions does check 10 from the raw log.
func (j *judge) transactions() {
	c := Check{Number: 10, Name: "transactions are whole, and readers see exactly the committed ones"}
	defer func() { j.add(c) }()
	var log []*Event
	for i := range j.h.Events {
		if e := &j.h.Events[i]; e.Kind == KindRaw || e.Kind == KindMarker {
			log = append(log, e)
		}
	}
	if len(log) == 0 {
		return
	}
	c.Checked = true
	slices.SortStableFunc(log, func(a, b *Event) int {
		return comparePlaces(place{a.Partition, a.Offset}, place{b.Partition, b.Offset})
	})
	// A producer's records end with its next marker in the partition.
	type in struct {
		p   int32
		pid int64
	}
	open := map[in][]*Event{}
	ended := map[txn]map[bool][]int32{}
	visible := map[place]*Event{}
	for _, e := range log {
		k := in{e.Partition, e.ProducerID}
		switch {
		case e.Kind == KindRaw && !e.InTxn:
			visible[e.place()] = e
		case e.Kind == KindRaw:
			open[k] = append(open[k], e)
		default:
			for _, r := range open[k] {
				t := txn{r.ProducerID, r.Epoch}
				if ended[t] == nil {
					ended[t] = map[bool][]int32{}
				}
				if ps := ended[t][e.Commit]; !slices.Contains(ps, e.Partition) {
					ended[t][e.Commit] = append(ps, e.Partition)
				}
				if e.Commit {
					visible[place{r.Partition, r.Offset}] = r
				}
			}
			delete(open, k)
		}
	}
	for k, rs := range open {
		c.fault("partition %d: %d records of producer %d from offset %d on belong to no ended transaction", k.p, len(rs), k.pid, rs[0].Offset)
	}
	for t, o := range ended {
		if len(o[true]) > 0 && len(o[false]) > 0 {
			c.fault("transaction of producer %d epoch %d is committed in partitions %v and aborted in %v", t.pid, t.epoch, o[true], o[false])
		}
	}
	read := map[place]bool{}
	for i := range j.h.Events {
		e := &j.h.Events[i]
		if e.Kind != KindOut {
			continue
		}
		p := e.place()
		read[p] = true
		if r := visible[p]; r == nil {
			c.fault("%v was read and is not committed in the log", p)
		} else if r.Value != e.Value {
			c.fault("%v was read as %s and is %s in the log", p, e.Value, r.Value)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(visible), comparePlaces) {
		if !read[p] {
			c.fault("%v is committed in the log and was not read", p)
		}
	}
}
