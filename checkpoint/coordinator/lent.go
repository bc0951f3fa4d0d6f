package coordinator

import "slices"

// Lent are shared files that no retained checkpoint refers to any more, and that a pending one may refer to: its tasks took them up while the
// checkpoint that holds them was retained. They are discarded when the last checkpoint that was pending then has ended, unless one that
// completed refers to them.
//
// Later checkpoints do not refer to them: their barriers carry the number of the latest completed one (Options.Base), and tasks refer to the
// files of that or of a later one.

// NoLongerLent is the reason of their Discard.
const NoLongerLent = "no checkpoint that was under way refers to it any more"

// lend keeps files, which nothing retained refers to any more, for the checkpoints that are pending, and returns those that are not kept.
func (c *Coordinator) lend(files []string) (unused []string) {
	last := int64(0)
	for _, p := range c.pending {
		if !p.savepoint() && !p.full { // these refer to nothing of others
			last = p.id
		}
	}
	if last == 0 {
		return files
	}
	for _, f := range files {
		c.lent[f] = last
	}
	return nil
}

// settleLent discards the lent files that nobody needs any more.
func (c *Coordinator) settleLent() {
	d := Discard{Reason: NoLongerLent}
	for f, last := range c.lent {
		switch {
		case c.registry.Has(f):
			delete(c.lent, f)
		case !slices.ContainsFunc(c.pending, func(p *pending) bool { return p.id <= last && !p.savepoint() && !p.full }):
			delete(c.lent, f)
			d.Files = append(d.Files, f)
		}
	}
	if len(d.Files) > 0 {
		slices.Sort(d.Files)
		c.emit(d)
	}
}
