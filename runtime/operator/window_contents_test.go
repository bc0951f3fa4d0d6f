package operator

import (
	"strings"
	"testing"
	"unsafe"
)

// The strings of records are views of memory that is used again; what a window keeps is its own, and is copied only when it is new.
func TestContentsKeepTheirOwnStrings(t *testing.T) {
	type named struct {
		Name string
		N    int64
	}
	most := func(a *named, v named, first bool) {
		if first || v.N > a.N {
			*a = v
		}
	}
	copied := func(a *named, v named, first bool) {
		if first || v.N > a.N {
			*a = named{strings.Clone(v.Name), v.N}
		}
	}
	room := []byte("....")
	view := func(name string, n int64) named {
		copy(room, name)
		return named{unsafe.String(unsafe.SliceData(room), len(name)), n}
	}
	for what, c := range map[string]contents[named, named]{"copied for it": {fold: most}, "copies itself": {fold: copied, copies: true}} {
		if err := c.init(true); err != nil {
			t.Fatal(err)
		}
		var acc named
		for i, step := range []struct {
			put, want string
			n         int64
		}{{"aaaa", "aaaa", 3}, {"bbbb", "aaaa", 2}, {"cc", "cc", 4}, {"dddd", "dddd", 5}, {"eeee", "dddd", 5}} {
			c.put(&acc, view(step.put, step.n), 0, i == 0)
			if copy(room, "...."); acc.Name != step.want {
				t.Errorf("%s: step %d keeps %q, want %q", what, i, acc.Name, step.want)
			}
		}
		v := view("less", 1)
		if n := testing.AllocsPerRun(100, func() { c.put(&acc, v, 0, false) }); n != 0 {
			t.Errorf("%s: %v allocations for a record that changes nothing", what, n)
		}
	}
}
