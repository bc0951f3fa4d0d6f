package stream

import (
	"errors"
	"strings"
	"testing"
)

// large is of a type whose decoder does not read what its encoder wrote.
type unreadable struct{ n int }

func (unreadable) MarshalBinary() ([]byte, error)     { return []byte("x"), nil }
func (*unreadable) UnmarshalBinary(data []byte) error { return errors.New("not like this") }

// A record that cannot go to another task fails the job for good, and names the operator whose it is, the limit and what to do; one that cannot be
// read there names its type and the operator that was to get it.
func TestRecordsThatCannotTravel(t *testing.T) {
	for _, mode := range []string{"STREAMING", "BATCH"} {
		conf := func() map[string]string {
			return map[string]string{"execution.runtime-mode": mode, "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1", "restart-strategy.fixed-delay.delay": "1 ms"}
		}
		err := runJob(t, conf(), func(env *Environment) error {
			env.FromCollection(65 << 20).Map(func(n int) []byte { return make([]byte, n) }).Name("swell").Rebalance().Filter(func([]byte) bool { return false }).SetParallelism(2).Print()
			return nil
		})
		for _, want := range []string{"operator swell at large_test.go:", "(64 MiB)", "keep what is large in files", "No restart: the failure is not one"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", mode, err, want)
			}
		}
		err = runJob(t, conf(), func(env *Environment) error {
			env.FromCollection(1).Map(func(n int) unreadable { return unreadable{n} }).Rebalance().Map(func(unreadable) int { return 1 }).Name("after").SetParallelism(2).Print()
			return nil
		})
		for _, want := range []string{"operator after at large_test.go:", "stream.unreadable", "not like this"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", mode, err, want)
			}
		}
	}
}
