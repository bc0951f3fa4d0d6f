package allocator

import "time"

// leave is what is known about the end of a container that the cluster will take away.
type leave struct {
	node, preempted bool
	expires         time.Time // of the notice of a preemption, which is said again as long as it holds
}

// over reports whether a preemption was called off.
func (l leave) over(at time.Time) bool {
	return l.preempted && !l.node && !l.expires.IsZero() && !at.Before(l.expires)
}

// leaving notes which containers will be taken away, and tells of each once.
//
// Source: hadoop-yarn-server-resourcemanager ProportionalCapacityPreemptionPolicy (a notice is repeated with each round until the container
// is killed, and not taken back), NodesListManager (updated nodes), Hadoop 3.4.
func (a *Allocator) leaving(e Answer) {
	for _, n := range e.Nodes {
		if n.Leaving {
			a.nodes[n.Node] = n.Until
		} else {
			delete(a.nodes, n.Node)
		}
	}
	for _, id := range e.Preempted {
		c := a.containers[id]
		if c == nil || c.state == releasing {
			continue
		}
		if !c.leave.node && !c.leave.preempted {
			a.out = append(a.out, Leaving{c.Container, e.At.Add(a.o.PreemptAfter), "the scheduler takes it for another queue or application"})
		}
		c.leave.preempted = true
		c.leave.expires = e.At.Add(2*a.o.PreemptAfter + preemptRound)
	}
	for _, c := range a.sorted() {
		until, leaves := a.nodes[c.Node]
		switch {
		case c.state == releasing:
		case leaves && !c.leave.node:
			c.leave.node = true
			a.out = append(a.out, Leaving{c.Container, until, "its node is being decommissioned"})
		case !leaves && c.leave.node:
			c.leave.node = false
			if !c.leave.preempted {
				a.out = append(a.out, Staying{c.Container})
			}
		}
	}
}

// leavingIn counts the containers of a size that have registered and will be taken away.
func (a *Allocator) leavingIn(b *bucket) (n int) {
	for _, c := range a.containers {
		if c.bucket == b && c.state == registered && (c.leave.node || c.leave.preempted) {
			n++
		}
	}
	return n
}

// preemptRound is more than the time between two rounds of the ResourceManager's preemption (3 s by default).
const preemptRound = 10 * time.Second

// stays takes the notice of a preemption back that was not repeated.
func (a *Allocator) stays(c *entry) {
	c.leave = leave{}
	a.out = append(a.out, Staying{c.Container})
}
