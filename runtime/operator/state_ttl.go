package operator

import (
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/state"
)

// StateTTLConfig lets the values of a keyed state expire, in processing time; in lists and maps each element does so by itself. A value
// has expired when TTL has passed since its last access.
//
// It may be given to, or taken from, a state that was stored without or with it: values without a time count as accessed at the first
// restore with it. Another TTL counts from the stored times: a longer one lets values reappear that had expired and were not removed. So does its
// removal: a state that is opened without time to live holds what was still stored, expired or not, from then on for ever. (Of values that must
// not come back, clear the state, or take another name for it.)
// Source: Flink StateTtlConfig; FLINK-32955 for the change over a restore.
type StateTTLConfig struct {
	TTL        time.Duration // at least a millisecond
	UpdateType TTLUpdateType
	Visibility TTLVisibility
	// CleanupFullSnapshot leaves expired values out of full snapshots: savepoints, and every checkpoint of the hashmap backend.
	CleanupFullSnapshot bool
	// CleanupIncrementally is how many entries are looked at for each access to the state, and removed when they have expired; 0 is none.
	CleanupIncrementally int
	// DisableCleanupInBackground turns off the clean-up that goes through the state a piece each second.
	DisableCleanupInBackground bool
}

// TTLUpdateType says which access renews a value's time.
type TTLUpdateType int

const (
	OnCreateAndWrite TTLUpdateType = iota
	OnReadAndWrite
)

// TTLVisibility says whether reads return values that have expired but are still there.
type TTLVisibility int

const (
	NeverReturnExpired TTLVisibility = iota
	ReturnExpiredIfNotCleanedUp
)

const (
	sweepEvery = 1000 // ms between steps of the background clean-up
	sweepStep  = 4096 // entries of such a step
	sweepBatch = 64   // entries at least of an incremental one
)

// ttl is the time to live of one open state.
type ttl struct {
	StateTTLConfig
	ms    int64
	ctx   *Context
	table state.Sweeper
	due   int               // entries that accesses asked to look at
	gone  connector.Counter // entries that were removed since they had expired
	told  int               // removed entries that the table has told of, in a step
}

func newTTL(c *Context, name string, cfg StateTTLConfig) (*ttl, error) {
	switch {
	case cfg.TTL < time.Millisecond:
		return nil, fmt.Errorf("time to live %v is below a millisecond", cfg.TTL)
	case cfg.CleanupIncrementally < 0:
		return nil, fmt.Errorf("incremental clean-up of %d entries", cfg.CleanupIncrementally)
	case cfg.UpdateType != OnCreateAndWrite && cfg.UpdateType != OnReadAndWrite:
		return nil, fmt.Errorf("unknown update type %d of the time to live", cfg.UpdateType)
	case cfg.Visibility != NeverReturnExpired && cfg.Visibility != ReturnExpiredIfNotCleanedUp:
		return nil, fmt.Errorf("unknown visibility %d of expired values", cfg.Visibility)
	}
	return &ttl{StateTTLConfig: cfg, ms: cfg.TTL.Milliseconds(), ctx: c, gone: c.Metrics.Counter(stateMetric(name, "numExpired"))}, nil
}

// expired may be called from any goroutine.
func (t *ttl) expired(at, now int64) bool {
	if at > math.MaxInt64-t.ms {
		return false
	}
	return at+t.ms <= now
}

// hidden reports whether reads treat a value of this time as absent.
func (t *ttl) hidden(at, now int64) bool {
	return t.Visibility == NeverReturnExpired && t.expired(at, now)
}

// sweep starts the clean-up of a table.
func (t *ttl) sweep(table any) {
	t.table, _ = table.(state.Sweeper)
	if t.table == nil || t.DisableCleanupInBackground {
		return
	}
	var again func() error
	again = func() error {
		if err := t.clean(sweepStep); err != nil {
			return fmt.Errorf("operator %s: %w", t.ctx.Describe(), err)
		}
		t.ctx.After(sweepEvery, again)
		return nil
	}
	t.ctx.After(sweepEvery, again)
}

// clean looks at the next n entries and removes those that have expired.
func (t *ttl) clean(n int) error {
	sized, ok := t.table.(interface{ Len() int })
	if !ok {
		return t.table.Sweep(n)
	}
	before := sized.Len()
	t.told = 0
	err := t.table.Sweep(n)
	if t.told == 0 { // hashmap, whose Len is exact
		t.told = max(before-sized.Len(), 0)
	}
	t.gone.Add(int64(t.told))
	return err
}

// removed is state.TTL.Removed.
func (t *ttl) removed(n int) { t.told += n }

// access is called before every access to the state of a key of a key group, when no value is held by pointer. It returns the time.
func (t *ttl) access(group uint16) (int64, error) {
	if group == noKey {
		return 0, noCurrentKey()
	}
	if t.CleanupIncrementally > 0 && t.table != nil {
		if t.due += t.CleanupIncrementally; t.due >= sweepBatch {
			n := t.due
			t.due = 0
			if err := t.clean(n); err != nil {
				return 0, err
			}
		}
	}
	return t.ctx.Now(), nil
}

// timedValue is a value that expires.
type timedValue[K comparable, V any] struct {
	t   state.Table[K, state.Timed[V]]
	cur *state.Key[K]
	ns  *state.Namespace
	ttl *ttl
}

func (k *timedValue[K, V]) get() (v V, found bool, err error) {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return v, false, err
	}
	x, found, err := k.t.Get(*k.cur, *k.ns)
	if err != nil || !found {
		return v, false, err
	}
	if k.ttl.expired(x.At, now) {
		k.ttl.gone.Add(1)
		if err := k.t.Delete(*k.cur, *k.ns); err != nil || k.ttl.Visibility == NeverReturnExpired {
			return v, false, err
		}
		return x.V, true, nil
	}
	if k.ttl.UpdateType == OnReadAndWrite && x.At != now {
		p, _, err := k.t.Ref(*k.cur, *k.ns)
		if err != nil {
			return v, false, err
		}
		p.At = now
	}
	return x.V, true, nil
}

func (k *timedValue[K, V]) put(v V) error {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return err
	}
	return k.t.Put(*k.cur, *k.ns, state.Timed[V]{At: now, V: v})
}

func (k *timedValue[K, V]) ref() (*V, bool, error) {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return nil, false, err
	}
	p, found, err := k.t.Ref(*k.cur, *k.ns)
	if err != nil {
		return nil, false, err
	}
	if found && k.ttl.hidden(p.At, now) {
		*p, found = state.Timed[V]{}, false
	}
	p.At = now
	return &p.V, found, nil
}

func (k *timedValue[K, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Delete(*k.cur, *k.ns)
}

func (k *timedValue[K, V]) table() any { return tableKeys[K, state.Timed[V]]{k.t} }
