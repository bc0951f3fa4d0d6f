package allocator

import (
	"maps"
	"slices"
	"time"
)

// excludePatience is how long asks may stay open, with room in the queue, before exclusions are lifted: a bad node is better than none.
const excludePatience = 30 * time.Second

// exclusions are the hosts where TaskManagers do not start, which the ResourceManager is asked to leave out for a while. They can never fail the
// application: a host is left out only while it is one of at most half of the cluster's nodes, as the ResourceManager last counted them; that
// count may be small for a while after a failover, which lifts nothing and excludes nothing. When nothing is granted though there is room, all
// are lifted.
type exclusions struct {
	failures map[string][]time.Time // of starts, by host, within Options.ExcludeFor
	until    map[string]time.Time   // the excluded ones
	told     map[string]bool        // what the ResourceManager was told to leave out
	sent     []string               // hosts whose entry in told is on its way
	nodes    int                    // of the cluster, by the last answer
	thirsty  time.Time              // since when asks are open though there is room; zero when they are not
}

func newExclusions() exclusions {
	return exclusions{failures: map[string][]time.Time{}, until: map[string]time.Time{}, told: map[string]bool{}}
}

func (a *Allocator) excluded(host string) bool {
	_, ok := a.bad.until[host]
	return ok
}

// blame counts a failed start on a host.
func (a *Allocator) blame(end Ended, at time.Time) {
	x, host := &a.bad, end.Container.Node.Host
	if a.o.ExcludeFailures <= 0 || a.excluded(host) {
		return
	}
	x.failures[host] = append(slices.DeleteFunc(x.failures[host], func(t time.Time) bool { return at.Sub(t) >= a.o.ExcludeFor }), at)
	if n := len(x.failures[host]); n >= a.o.ExcludeFailures && 2*(len(x.until)+1) <= x.nodes {
		x.until[host] = at.Add(a.o.ExcludeFor)
		delete(x.failures, host)
		a.out = append(a.out, Excluded{Host: host, Until: x.until[host], Failures: n, Last: end}, BeatNow{})
	}
}

// include ends the exclusion of hosts.
func (a *Allocator) include(why string, hosts ...string) {
	for _, h := range hosts {
		delete(a.bad.until, h)
		a.out = append(a.out, Included{Host: h, Why: why}, BeatNow{})
	}
}

// changes are the hosts that the ResourceManager is to leave out from now on, and those that it is not to any more.
func (x *exclusions) changes() (add, remove []string) {
	for _, h := range slices.Sorted(maps.Keys(x.until)) {
		if !x.told[h] {
			add = append(add, h)
			x.told[h] = true
		}
	}
	for _, h := range slices.Sorted(maps.Keys(x.told)) {
		if _, ok := x.until[h]; !ok {
			remove = append(remove, h)
			delete(x.told, h)
		}
	}
	x.sent = append(slices.Clone(add), remove...)
	return add, remove
}

// unknown notes that the last call may have been lost: what it said is said again, which does no harm.
func (x *exclusions) unknown() {
	for _, h := range x.sent {
		if _, ok := x.until[h]; ok {
			delete(x.told, h)
		} else {
			x.told[h] = true
		}
	}
	x.sent = nil
}

// look takes the cluster's state of an answer over.
func (a *Allocator) look(e Answer) {
	x := &a.bad
	x.sent, x.nodes = nil, e.ClusterNodes
	short := slices.ContainsFunc(a.buckets, func(b *bucket) bool { return b.live < b.wanted && b.spec.Resource.Fits(e.Headroom) })
	switch {
	case !short || len(x.until) == 0 || len(e.Granted) > 0:
		x.thirsty = time.Time{}
	case x.thirsty.IsZero():
		x.thirsty = e.At
	case e.At.Sub(x.thirsty) >= excludePatience:
		x.thirsty = time.Time{}
		a.include("nothing is granted elsewhere though there is room", slices.Sorted(maps.Keys(x.until))...)
	}
}

// forgiveHosts ends exclusions whose time is over.
func (a *Allocator) forgiveHosts(at time.Time) {
	for _, h := range slices.Sorted(maps.Keys(a.bad.until)) {
		if !at.Before(a.bad.until[h]) {
			a.include("its time is over", h)
		}
	}
}

// ExcludedHosts are the hosts that are left out at present.
func (a *Allocator) ExcludedHosts() []string { return slices.Sorted(maps.Keys(a.bad.until)) }
