package enumerator

import (
	"fmt"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"pgregory.net/rapid"
)

func splitOf(k Key) connector.Split {
	return connector.Split{ID: k.String(), State: []byte("s:" + k.String())}
}

// shell applies effects to a model of the readers.
type shell struct {
	t     interface{ Fatalf(string, ...any) }
	held  map[Key]int // partition -> subtask that has it
	inits map[Key]bool
}

func (s *shell) apply(c *Core, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Resolve:
			m := map[Key]connector.Split{}
			for _, p := range e.Partitions {
				m[p.Key] = splitOf(p.Key)
				s.inits[p.Key] = e.Initial
			}
			s.apply(c, c.Resolved(e.Partitions, m))
		case Assign:
			for _, sp := range e.Splits {
				k := parse(sp.ID)
				if by, ok := s.held[k]; ok {
					s.t.Fatalf("%v handed out twice: to %d and %d", k, by, e.Subtask)
				}
				if e.Subtask != Owner(k, c.parallelism) {
					s.t.Fatalf("%v given to %d, owner is %d", k, e.Subtask, Owner(k, c.parallelism))
				}
				s.held[k] = e.Subtask
			}
		}
	}
}

func parse(id string) Key {
	var k Key
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == '-' {
			k.Topic = id[:i]
			_, _ = fmt.Sscan(id[i+1:], &k.Partition)
			break
		}
	}
	return k
}

// Whatever the order of discoveries, readers coming and going, and restores: each partition is with exactly one owner once all readers
// are up, and only partitions of the first discovery are initial.
func TestEveryPartitionIsAssignedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		par := rapid.IntRange(1, 5).Draw(t, "parallelism")
		c, err := New(Config{Parallelism: par}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := &shell{t: t, held: map[Key]int{}, inits: map[Key]bool{}}
		counts := map[string]int32{"a": rapid.Int32Range(1, 4).Draw(t, "na"), "b-1": rapid.Int32Range(0, 4).Draw(t, "nb")}
		first := map[Key]bool{}
		discovered := false
		list := func() (ps []Partition) {
			for topic, n := range counts {
				for i := range n {
					ps = append(ps, Partition{Key: Key{topic, i}, TopicID: [16]byte{topic[0]}})
				}
			}
			return ps
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				ps := list()
				if !discovered {
					for _, p := range ps {
						first[p.Key] = true
					}
				}
				discovered = true
				s.apply(c, c.Discovered(ps))
			case 1:
				s.apply(c, c.ReaderUp(rapid.IntRange(0, par-1).Draw(t, "sub")))
			case 2:
				counts["a"]++
			case 3:
				sub := rapid.IntRange(0, par-1).Draw(t, "sub")
				back := map[Key]connector.Split{}
				for k, by := range s.held {
					if by == sub {
						back[k] = splitOf(k)
						delete(s.held, k)
					}
				}
				s.apply(c, c.SplitsBack(sub, back))
			case 4: // restore: readers keep what they had (their own state)
				c2, err := New(Config{Parallelism: par}, c.Snapshot())
				if err != nil {
					t.Fatal(err)
				}
				c = c2
			}
		}
		s.apply(c, c.Discovered(list()))
		for i := range par {
			s.apply(c, c.ReaderUp(i))
		}
		for _, p := range list() {
			if _, ok := s.held[p.Key]; !ok {
				t.Fatalf("%v is with nobody", p.Key)
			}
			if discovered && s.inits[p.Key] != first[p.Key] {
				t.Fatalf("%v: initial %v, want %v", p.Key, s.inits[p.Key], first[p.Key])
			}
		}
	})
}

func TestRecreatedTopicIsSeenOnce(t *testing.T) {
	c, _ := New(Config{Parallelism: 1}, nil)
	s := &shell{t: t, held: map[Key]int{}, inits: map[Key]bool{}}
	s.apply(c, c.Discovered([]Partition{{Key{"t", 0}, [16]byte{1}}}))
	var got []Recreated
	for _, e := range c.Discovered([]Partition{{Key{"t", 0}, [16]byte{2}}}) {
		if r, ok := e.(Recreated); ok {
			got = append(got, r)
		}
	}
	if len(got) != 1 || got[0].Old != [16]byte{1} || got[0].New != [16]byte{2} {
		t.Fatalf("got %+v", got)
	}
}

func TestFinalTellsEveryReaderOnce(t *testing.T) {
	c, _ := New(Config{Parallelism: 3, Final: true, Bounded: true}, nil)
	var effects []Effect
	effects = append(effects, c.ReaderUp(0)...)
	if len(effects) != 0 {
		t.Fatalf("told before the discovery: %v", effects)
	}
	for _, e := range c.Discovered([]Partition{{Key: Key{"t", 0}}}) {
		r := e.(Resolve)
		effects = append(effects, c.Resolved(r.Partitions, map[Key]connector.Split{{"t", 0}: splitOf(Key{"t", 0})})...)
	}
	effects = append(effects, c.ReaderUp(1)...)
	effects = append(effects, c.ReaderUp(2)...)
	effects = append(effects, c.Discovered([]Partition{{Key: Key{"t", 0}}, {Key: Key{"t", 1}}})...)
	told, assigned := map[int]int{}, 0
	for _, e := range effects {
		switch e := e.(type) {
		case NoMore:
			told[e.Subtask]++
		case Assign:
			assigned += len(e.Splits)
			if told[e.Subtask] > 0 {
				t.Fatalf("subtask %d got a split after NoMore", e.Subtask)
			}
		case Resolve:
			t.Fatal("a bounded source took a partition that came later")
		}
	}
	if assigned != 1 || told[0] != 1 || told[1] != 1 || told[2] != 1 {
		t.Fatalf("assigned %d, told %v", assigned, told)
	}
}

// A restored job may find a partition that was added while it was down: no reader is told that it has everything before.
func TestRestoredReadersWaitForTheDiscovery(t *testing.T) {
	first, _ := New(Config{Parallelism: 1, Final: true}, nil)
	s := &shell{t: t, held: map[Key]int{}, inits: map[Key]bool{}}
	s.apply(first, first.ReaderUp(0))
	s.apply(first, first.Discovered([]Partition{{Key: Key{"t", 0}}}))
	c, err := New(Config{Parallelism: 1, Final: true}, first.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if effects := c.ReaderUp(0); len(effects) != 0 {
		t.Fatalf("told before the discovery: %v", effects)
	}
	r := c.Discovered([]Partition{{Key: Key{"t", 0}}, {Key: Key{"t", 1}}})[0].(Resolve)
	effects := c.Resolved(r.Partitions, map[Key]connector.Split{{"t", 1}: splitOf(Key{"t", 1})})
	if len(effects) != 2 || len(effects[0].(Assign).Splits) != 1 || effects[1] != (NoMore{0}) {
		t.Fatalf("%v", effects)
	}
}

func FuzzRestore(f *testing.F) {
	c, _ := New(Config{Parallelism: 2}, nil)
	s := &shell{t: f, held: map[Key]int{}, inits: map[Key]bool{}}
	s.apply(c, c.Discovered([]Partition{{Key{"t", 0}, [16]byte{1}}, {Key{"t", 1}, [16]byte{1}}}))
	f.Add(c.Snapshot())
	f.Add([]byte{1, 1, 0, 0, 0, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := New(Config{Parallelism: 2}, b); err == nil && b != nil {
			if _, err := New(Config{Parallelism: 2}, c.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
