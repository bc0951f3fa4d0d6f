package operator

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkKeyedState is one access of a record's key to each kind of state: 10,000 keys, in an order without locality.
func BenchmarkKeyedState(b *testing.B) {
	for _, backend := range backends {
		for _, opts := range [][]StateOption{nil, {WithTTL(StateTTLConfig{TTL: time.Hour})}} {
			fn := &commanded{opts: opts}
			f := KeyedProcess(commandKey(b), func() KeyedProcessFunction[string, command, string] { return fn })
			h := newHarness[command, string](b, f, backend, 1, commandKey(b).NewHash())
			op := h.tasks[0].op.(*processOp[string, command, string])
			hash := commandKey(b).NewHash()
			var records []command
			var metas []Meta
			for i := range 10_000 {
				c := command{Key: fmt.Sprintf("key-%d", i)}
				records = append(records, c)
				metas = append(metas, Meta{Hash: hash(c)})
			}
			run := func(name string, access func(i int) error) {
				b.Run(fmt.Sprintf("%s/ttl=%v/%s", backend, opts != nil, name), func(b *testing.B) {
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						k, err := op.sel.key(op.Ctx, records[i], metas[i])
						if err != nil {
							b.Fatal(err)
						}
						op.enter(k, metas[i])
						if err := access(i); err != nil {
							b.Fatal(err)
						}
						if i += 7919; i >= len(records) {
							i -= len(records)
						}
					}
				})
			}
			run("none", func(int) error { return nil })
			run("value", func(int) error {
				if _, _, err := fn.value.Value(); err != nil {
					return err
				}
				return fn.value.Update("v")
			})
			run("reducing", func(i int) error { return fn.red.Add(int64(i)) })
			run("aggregating", func(i int) error { return fn.agg.Add(command{V: int64(i)}) })
			run("map put get", func(i int) error {
				if err := fn.m.Put("s", int64(i)); err != nil {
					return err
				}
				_, _, err := fn.m.Get("s")
				return err
			})
			h.close()
		}
	}
}
