package shared

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Against a plain list of who holds what: a file is given back when, and only when, its last holder goes.
func TestRegistryAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Registry
		model := map[int64]map[string]bool{}
		held := func(f string) bool {
			for _, files := range model {
				if files[f] {
					return true
				}
			}
			return false
		}
		file := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("f%d", rapid.IntRange(0, 9).Draw(t, "file")) })
		id := rapid.Int64Range(1, 5)
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				n, files := id.Draw(t, "id"), rapid.SliceOfN(file, 0, 6).Draw(t, "files")
				r.Register(n, files)
				if model[n] == nil {
					model[n] = map[string]bool{}
				}
				for _, f := range files {
					model[n][f] = true
				}
			},
			"unregister": func(t *rapid.T) {
				n := id.Draw(t, "id")
				files := model[n]
				delete(model, n)
				var want []string
				for f := range files {
					if !held(f) {
						want = append(want, f)
					}
				}
				slices.Sort(want)
				if got := r.Unregister(n); !slices.Equal(got, want) {
					t.Fatalf("unregister %d: %v, want %v", n, got, want)
				}
			},
			"": func(t *rapid.T) {
				for i := range 10 {
					if f := fmt.Sprintf("f%d", i); r.Has(f) != held(f) || slices.Contains(r.Files(), f) != held(f) {
						t.Fatalf("%s: held %v", f, held(f))
					}
				}
			},
		})
	})
}
