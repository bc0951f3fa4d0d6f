package operator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// This is windows as plainly as they can be: every key's windows in a list, every window's records in a list, written after Flink's
// WindowOperator and triggers, with nothing in common with the operators but the types of their configuration.

type functionKind int

const (
	aggregateFn functionKind = iota
	reduceFn
	processFn
	aggregateProcessFn
	functionKinds
	joinFn // of two streams
	coGroupFn
)

type triggerKind int

const (
	ownTrigger triggerKind = iota
	eventTrigger
	procTrigger
	countingTrigger
	continuousEvent
	continuousProc
	deltaKind
	triggerKinds
)

type evictorKind int

const (
	noEvictor evictorKind = iota
	evictCount
	evictTime
	evictDelta
	evictorKinds
)

type refConfig struct {
	assigner WindowAssigner[reading]
	fn       functionKind
	trigger  triggerKind
	purging  bool
	n        int64 // of the trigger
	evictor  evictorKind
	after    bool
	keep     int64 // of the evictor
	lateness int64
	sideLate bool
}

func absDelta(a, b reading) float64 { return math.Abs(float64(a.Value - b.Value)) }

type refWindow struct {
	w           Window
	elems       []TimestampedValue[reading]
	some        bool
	event, proc map[int64]bool
	count       int64
	next        int64
	hasNext     bool
	last        *reading
	kept        refKept
}

// refKept is per-window state: what was added since it was cleared, as a whole.
type refKept struct {
	fired            int64
	list, most, mean []int64
	counts           map[int64]int64
}

// keep is windowProbe.keep.
func (x *refKept) keep(sum int64) string {
	n := x.fired
	x.fired++
	x.list, x.most, x.mean = append(x.list, sum), append(x.most, sum), append(x.mean, sum)
	if sum%3 == 1 {
		x.list = []int64{n, sum}
	}
	if x.counts == nil {
		x.counts = map[int64]int64{}
	}
	x.counts[sum&3]++
	delete(x.counts, (sum+n)&3)
	switch sum % 7 {
	case 2:
		x.counts = nil
	case 3:
		x.most = nil
	case 4:
		x.mean = nil
	case 5:
		x.list = nil
	}
	most, mean, total := int64(0), 0.0, int64(0)
	for _, v := range x.mean {
		total += v
		mean = float64(total) / float64(len(x.mean))
	}
	if len(x.most) > 0 {
		most = slices.Max(x.most)
	}
	return fmt.Sprint(x.fired, x.list, x.counts, most, mean)
}

type refKey struct {
	windows []*refWindow
	fired   int64 // the key's own state
}

type reference struct {
	refConfig
	keys      map[string]*refKey
	mark, now int64
	restarted bool // the next watermark is the first one, for timers that were registered in the past
	out       []string
	odd       []string // side output of the process function
	late      []string
}

func newReference(c refConfig) *reference {
	return &reference{refConfig: c, keys: map[string]*refKey{}, mark: MinWatermark}
}

func floorTo(ts, size, offset int64) int64 {
	for off := offset % size; ; off -= size {
		if off <= ts {
			return off + (ts-off)/size*size
		}
	}
}

func (m *reference) cleanup(w Window) int64 {
	switch {
	case m.assigner.Kind == GlobalWindows:
		return math.MaxInt64
	case m.assigner.EventTime:
		return w.End - 1 + m.lateness
	}
	return w.End - 1
}

func (m *reference) isLate(w Window) bool { return m.assigner.EventTime && m.cleanup(w) <= m.mark }

func (m *reference) process(r reading, ts int64) {
	k := m.keys[r.Sensor]
	if k == nil {
		k = &refKey{}
		m.keys[r.Sensor] = k
	}
	at := ts
	if !m.assigner.EventTime {
		at = m.now
	}
	skipped := true
	switch a := m.assigner; a.Kind {
	case GlobalWindows:
		skipped = false
		m.add(k, GlobalWindow(), r, ts)
	case SlidingWindows:
		s := a.Sliding
		for start := floorTo(at, s.Slide, s.Offset); start > at-s.Size; start -= s.Slide {
			if w := (Window{start, start + s.Size}); !m.isLate(w) {
				skipped = false
				m.add(k, w, r, ts)
			}
		}
	case SessionWindows:
		gap := a.Session.Gap
		if a.Session.Dynamic != nil {
			gap = a.Session.Dynamic(r)
		}
		w := Window{at, at + gap}
		var in, rest []*refWindow
		for _, x := range k.windows {
			if x.w.Start <= w.End && w.Start <= x.w.End {
				in = append(in, x)
			} else {
				rest = append(rest, x)
			}
		}
		all := w
		for _, x := range in {
			all.Start, all.End = min(all.Start, x.w.Start), max(all.End, x.w.End)
		}
		if m.isLate(all) {
			break
		}
		skipped = false
		if len(in) > 0 && !(len(in) == 1 && in[0].w == all) {
			n := &refWindow{w: all, event: map[int64]bool{}, proc: map[int64]bool{}}
			for _, x := range in {
				n.elems = append(n.elems, x.elems...)
				n.some = n.some || x.some
				n.count += x.count
				if x.hasNext && (!n.hasNext || x.next < n.next) {
					n.next, n.hasNext = x.next, true
				}
			}
			k.windows = append(rest, n)
			switch m.kind() {
			case eventTrigger:
				if n.w.MaxTimestamp() > m.mark {
					n.event[n.w.MaxTimestamp()] = true
				}
			case procTrigger:
				if n.w.MaxTimestamp() > m.now {
					n.proc[n.w.MaxTimestamp()] = true
				}
			case continuousEvent:
				if n.hasNext {
					n.event[n.next] = true
				}
			case continuousProc:
				if n.hasNext {
					n.proc[n.next] = true
				}
			}
		}
		m.add(k, all, r, ts)
	}
	if skipped && m.assigner.EventTime && ts+m.lateness <= m.mark {
		m.late = append(m.late, fmt.Sprint(r, ts))
	}
}

// kind is the trigger, with the assigner's own one resolved; a negative one never fires.
func (m *reference) kind() triggerKind {
	switch {
	case m.trigger != ownTrigger:
		return m.trigger
	case m.assigner.Kind == GlobalWindows:
		return -1
	case m.assigner.EventTime:
		return eventTrigger
	}
	return procTrigger
}

func (m *reference) add(k *refKey, w Window, r reading, ts int64) {
	i := slices.IndexFunc(k.windows, func(x *refWindow) bool { return x.w == w })
	if i < 0 {
		i = len(k.windows)
		k.windows = append(k.windows, &refWindow{w: w, event: map[int64]bool{}, proc: map[int64]bool{}})
	}
	x := k.windows[i]
	x.elems, x.some = append(x.elems, TimestampedValue[reading]{r, ts}), true
	fire := false
	switch m.kind() {
	case eventTrigger:
		if fire = w.MaxTimestamp() <= m.mark; !fire {
			x.event[w.MaxTimestamp()] = true
		}
	case procTrigger:
		x.proc[w.MaxTimestamp()] = true
	case countingTrigger:
		x.count++
		if x.count >= m.n {
			x.count, fire = 0, true
		}
	case continuousEvent:
		if fire = w.MaxTimestamp() <= m.mark; !fire {
			x.event[w.MaxTimestamp()] = true
			if !x.hasNext {
				m.again(x, floorTo(ts, m.n, 0), true)
			}
		}
	case continuousProc:
		if !x.hasNext {
			m.again(x, floorTo(m.now, m.n, 0), false)
		}
	case deltaKind:
		switch {
		case x.last == nil:
			x.last = &r
		case absDelta(*x.last, r) > float64(m.n):
			x.last, fire = &r, true
		}
	}
	if fire {
		m.fire(k, x, r.Sensor)
	}
	if at := m.cleanup(w); at != math.MaxInt64 {
		if m.assigner.EventTime {
			x.event[at] = true
		} else {
			x.proc[at] = true
		}
	}
}

func (m *reference) again(x *refWindow, fired int64, event bool) {
	at := x.w.MaxTimestamp()
	if fired < at-m.n {
		at = fired + m.n
	}
	if at <= fired {
		return
	}
	if !x.hasNext || at < x.next {
		x.next = at
	}
	x.hasNext = true
	if event {
		x.event[at] = true
	} else {
		x.proc[at] = true
	}
}

func (m *reference) fire(k *refKey, x *refWindow, key string) {
	if !x.some {
		return
	}
	elems := slices.Clone(x.elems)
	if !m.after {
		elems = m.evict(elems)
	}
	m.emit(k, x, key, elems)
	if m.after {
		elems = m.evict(elems)
	}
	if m.evictor != noEvictor {
		x.elems, x.some = elems, len(elems) > 0
	}
	if m.purging {
		x.elems, x.some = nil, false
	}
}

func (m *reference) evict(v []TimestampedValue[reading]) []TimestampedValue[reading] {
	var out []TimestampedValue[reading]
	latest := int64(math.MinInt64)
	for _, e := range v {
		latest = max(latest, e.Timestamp)
	}
	for i, e := range v {
		gone := false
		switch m.evictor {
		case evictCount:
			gone = int64(len(v)-i) > m.keep
		case evictTime:
			gone = e.Timestamp <= latest-m.keep
		case evictDelta:
			gone = absDelta(e.Value, v[len(v)-1].Value) >= float64(m.keep)
		}
		if !gone {
			out = append(out, e)
		}
	}
	return out
}

// result is what process functions emit, as text.
func result(key string, w Window, values []int64, kept string, keyFired int64) string {
	slices.Sort(values)
	return fmt.Sprint(key, w, values, kept, " ", keyFired)
}

// grouped is what a coGroup emits, as text.
func grouped(key string, w Window, one, two []int64) string {
	slices.Sort(one)
	slices.Sort(two)
	return fmt.Sprint(key, w, one, two)
}

func (m *reference) emit(k *refKey, x *refWindow, key string, elems []TimestampedValue[reading]) {
	var sum, n int64
	var values []int64
	for _, e := range elems {
		sum, n = sum+e.Value.Value, n+1
		values = append(values, e.Value.Value)
	}
	at := fmt.Sprint("@", x.w.MaxTimestamp())
	switch m.fn {
	case aggregateFn:
		m.out = append(m.out, fmt.Sprint(key, x.w, sum, n)+at)
	case reduceFn:
		if n > 0 {
			m.out = append(m.out, fmt.Sprint(key, sum)+at)
		}
	case joinFn, coGroupFn:
		var sides [2][]int64
		for _, v := range values {
			sides[v&1] = append(sides[v&1], v)
		}
		if m.fn == coGroupFn {
			m.out = append(m.out, grouped(key, x.w, sides[0], sides[1])+at)
			return
		}
		for _, l := range sides[0] {
			for _, r := range sides[1] {
				m.out = append(m.out, fmt.Sprint(key, x.w, l, r)+at)
				if (l+r)%3 == 0 {
					m.odd = append(m.odd, fmt.Sprint(key, l+r))
				}
			}
		}
	default:
		if m.fn == aggregateProcessFn {
			values = []int64{sum, n}
		}
		k.fired++
		kept := ""
		if m.assigner.Kind != SessionWindows {
			kept = x.kept.keep(sum)
		}
		m.out = append(m.out, result(key, x.w, values, kept, m.shownKey(k.fired))+at)
		if sum%2 != 0 {
			m.odd = append(m.odd, fmt.Sprint(key, sum))
		}
	}
}

// kept are the windows with per-window state, as harness.entries has them.
func (m *reference) kept() (all []string) {
	for key, k := range m.keys {
		for _, x := range k.windows {
			if x.kept.fired == 0 {
				continue
			}
			start := x.w.Start
			if m.assigner.Kind == GlobalWindows {
				start = 0
			}
			all = append(all, fmt.Sprint(key, " ", start))
		}
	}
	slices.Sort(all)
	return all
}

// shownKey is the key's state where the order of its firings is one only.
func (c *refConfig) shownKey(n int64) int64 {
	if c.assigner.Kind == GlobalWindows || c.assigner.Kind == SlidingWindows && c.assigner.Sliding.Size == c.assigner.Sliding.Slide && c.trigger <= eventTrigger {
		return n
	}
	return 0
}

func (m *reference) watermark(ts int64) {
	if ts <= m.mark && !m.restarted {
		return
	}
	m.mark, m.restarted = ts, false
	m.timers(ts, true)
}

func (m *reference) advance(now int64) {
	m.now = now
	m.timers(now, false)
}

func (m *reference) timers(until int64, event bool) {
	type due struct {
		at  int64
		key string
		x   *refWindow
	}
	for {
		var all []due
		for key, k := range m.keys {
			for _, x := range k.windows {
				set := x.proc
				if event {
					set = x.event
				}
				for at := range set {
					if at <= until {
						all = append(all, due{at, key, x})
					}
				}
			}
		}
		if len(all) == 0 {
			return
		}
		d := slices.MinFunc(all, func(a, b due) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.key, b.key), cmp.Compare(a.x.w.Start, b.x.w.Start))
		})
		k := m.keys[d.key]
		if event {
			delete(d.x.event, d.at)
		} else {
			delete(d.x.proc, d.at)
		}
		m.due(k, d.x, d.key, d.at, event)
	}
}

func (m *reference) due(k *refKey, x *refWindow, key string, at int64, event bool) {
	fire := false
	switch kind := m.kind(); kind {
	case eventTrigger:
		fire = event && at == x.w.MaxTimestamp()
	case procTrigger:
		fire = !event
	case continuousEvent, continuousProc:
		switch {
		case event != (kind == continuousEvent):
		case event && at == x.w.MaxTimestamp():
			fire = true
		case x.hasNext && x.next == at:
			fire, x.hasNext = true, false
			from := at
			if event && m.mark == MaxWatermark && m.assigner.Kind == GlobalWindows {
				from = math.MaxInt64 - m.n
			}
			m.again(x, from, event)
		}
	}
	if fire {
		m.fire(k, x, key)
	}
	if event == m.assigner.EventTime && at == m.cleanup(x.w) {
		k.windows = slices.DeleteFunc(k.windows, func(o *refWindow) bool { return o == x })
	}
}
