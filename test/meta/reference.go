package meta

import (
	"fmt"
	"slices"
)

// reference is what the job has to say, sorted. It knows nothing of streams.
func reference(seed uint64, pad int) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	var cs []click
	for n := range int64(clicks) {
		cs = append(cs, clickOf(seed, n, pad))
	}
	var os []order
	for n := range int64(orders) {
		os = append(os, orderOf(seed, n))
	}
	type pane struct{ key, start int64 }
	sums, counts, alarms := map[pane]int64{}, map[pane]int64{}, map[pane]int64{}
	times := map[int64][]int64{}
	for _, c := range cs {
		sums[pane{c.Key, c.At - c.At%tumbling}] += c.Value
		for start := c.At - c.At%slide; start > c.At-size; start -= slide {
			counts[pane{c.Key, start}]++
		}
		alarms[pane{c.Key, alarmOf(c)}]++
		times[c.Key] = append(times[c.Key], c.At)
		if c.Value > ruleOf(seed, c.Key%rules).Limit {
			say("rule|%d", c.ID)
		}
		for _, o := range os {
			if o.Key != c.Key {
				continue
			}
			if c.At-reach <= o.At && o.At <= c.At+reach {
				say("near|%d|%d", c.ID, o.ID)
			}
			if o.At/joined == c.At/joined {
				say("join|%d|%d", c.ID, o.ID)
			}
		}
	}
	for p, n := range sums {
		say("tumbling|%d|%d|%d", p.key, p.start, n)
	}
	for p, n := range counts {
		say("sliding|%d|%d|%d", p.key, p.start, n)
	}
	for p, n := range alarms {
		say("alarm|%d|%d|%d", p.key, p.start, n)
	}
	for k, ts := range times {
		slices.Sort(ts)
		start, n := ts[0], 0
		for i, t := range ts {
			n++
			if i+1 == len(ts) || ts[i+1] > t+gap {
				say("session|%d|%d|%d|%d", k, start, t+gap, n)
				if i+1 < len(ts) {
					start, n = ts[i+1], 0
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
