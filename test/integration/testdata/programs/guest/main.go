// Command guest is a job of a session: its first argument says whether it goes on for ever, panics, or takes memory without bound. Built with
// another variant it is another program.
package main

import (
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

var variant = "0"

func main() {
	stream.Main("guest-"+variant, func(env *stream.Environment) error {
		kind := ""
		if a := env.Args(); len(a) > 0 {
			kind = a[0]
		}
		env.EnableCheckpointing(time.Second, stream.ExactlyOnce)
		var hoard [][]byte
		env.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.RatePerSecond(100)), stream.NoWatermarks[int64](), "numbers").UID("numbers").
			Map(func(n int64) int64 {
				switch {
				case kind == "panic" && n > 50:
					panic("on purpose")
				case kind == "leak":
					b := make([]byte, 4<<20)
					for i := range b {
						b[i] = byte(i)
					}
					hoard = append(hoard, b)
				}
				return n
			}).UID("map").Filter(func(n int64) bool { return n < 0 }).Print().UID("out")
		return nil
	})
}
