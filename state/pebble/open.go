package pebble

import (
	"fmt"
	"runtime"
	"sync"

	pdb "github.com/cockroachdb/pebble/v2"
)

// openDB opens a store of the backend's directory.
func openDB(b *Backend, dir string, readOnly bool) (db *pdb.DB, err error) {
	o := &opening{disk: b.disk}
	p := dbOptions(b, readOnly, o)
	// As Pebble's own, but without a ticker: what there is to compact changes with flushes and compactions only, which ask.
	o.CompactionScheduler = pdb.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	p.Experimental.CompactionScheduler = o
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			db, err = nil, fmt.Errorf("pebble: open %s: %w", dir, r.error)
		default:
			panic(r)
		}
	}()
	if db, err = pdb.Open(dir, p); err != nil {
		return nil, fmt.Errorf("pebble: open %s: %w", dir, err)
	}
	o.done()
	return db, nil
}

// opening holds compactions back until a store is open: Pebble begins with them before, and goes on when its Open fails, with files and a
// cache that are closed then, which ends the process. It also takes the faults after which a store cannot go on.
type opening struct {
	pdb.CompactionScheduler
	disk *disk

	mu   sync.Mutex
	open bool
	n    int
	db   pdb.DBForCompaction
}

// Register implements pdb.CompactionScheduler. Pebble calls it before its Open is over.
func (o *opening) Register(n int, db pdb.DBForCompaction) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n, o.db = n, db
}

// done says that the store is open, and begins with what it asked for meanwhile.
func (o *opening) done() {
	o.mu.Lock()
	o.CompactionScheduler.Register(o.n, o.db)
	o.open = true
	o.mu.Unlock()
	if ok, h := o.CompactionScheduler.TrySchedule(); ok {
		h.Done() // grants what waits
	}
}

func (o *opening) isOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open
}

// TrySchedule implements pdb.CompactionScheduler.
func (o *opening) TrySchedule() (bool, pdb.CompactionGrantHandle) {
	if !o.isOpen() {
		return false, nil
	}
	return o.CompactionScheduler.TrySchedule()
}

// UpdateGetAllowedWithoutPermission implements pdb.CompactionScheduler.
func (o *opening) UpdateGetAllowedWithoutPermission() {
	if o.isOpen() {
		o.CompactionScheduler.UpdateGetAllowedWithoutPermission()
	}
}

// fatal is what a store's opening ends with when it cannot go on.
type fatal struct{ error }

// fatal does not return. A store that is being opened fails to; one that is open is dead: the goroutine ends, which is Pebble's, or the
// caller's, who takes that for a failure. What the store holds stays until the process ends.
func (o *opening) fatal(err error) {
	if !o.isOpen() {
		panic(fatal{err})
	}
	o.disk.die(err)
	runtime.Goexit()
}
