package state

import "sync"

// Pool is memory that the backends of one slot share, so that their number does not multiply what the slot may use, and one with much state
// is not held to a part while the others have little. Each says what it uses and is told how far it may go. Safe for concurrent use.
type Pool struct {
	Bytes   int64 // the whole
	Members int   // backends that a slot has at most: each may always use its part

	mu     sync.Mutex
	in     map[*PoolMember]struct{}
	shared any
	drop   func()
}

// NewPool makes a pool for so many backends, at least one.
func NewPool(bytes int64, members int) *Pool {
	return &Pool{Bytes: bytes, Members: max(members, 1), in: map[*PoolMember]struct{}{}}
}

// PoolMember is one backend's part in a pool. Leave it.
type PoolMember struct {
	p    *Pool
	used int64 // guarded by p.mu
}

// Join makes a member and returns what all members have in common: what the first of them made. drop is called when the last has left.
func (p *Pool) Join(make func() (shared any, drop func())) (*PoolMember, any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.in) == 0 {
		p.shared, p.drop = make()
	}
	m := &PoolMember{p: p}
	p.in[m] = struct{}{}
	return m, p.shared
}

// Leave ends the membership.
func (m *PoolMember) Leave() {
	p := m.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.in[m]; !ok {
		return
	}
	if delete(p.in, m); len(p.in) == 0 {
		p.drop()
		p.shared, p.drop = nil, nil
	}
}

// Report says what the member uses of total bytes that all have together, and returns how much it may use: what the others leave, and its
// even part at least. It comes near to what the others leave in steps, so that they are seen growing.
func (m *PoolMember) Report(used, total int64) (limit int64) {
	p := m.p
	p.mu.Lock()
	defer p.mu.Unlock()
	m.used = used
	left := total
	for o := range p.in {
		if o != m {
			left -= o.used
		}
	}
	part := total / int64(p.Members)
	return max(part, min(left, used+part/2+total/16))
}
