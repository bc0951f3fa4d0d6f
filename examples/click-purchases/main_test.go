package main

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func TestAttributions(t *testing.T) {
	h := streamtest.New2(t, attributions)
	forgotten := h.SideOutput(late)
	at := func(m int64) time.Time { return minute(m) }
	click := func(user, ad string, m int64) { h.Second.PushAt(at(m), Click{user, ad, at(m)}) }
	buy := func(user string, cents, m int64) { h.First.PushAt(at(m), Purchase{user, cents, at(m)}) }
	click("ann", "shoes", 0)
	click("ann", "hats", 5)
	click("bob", "hats", 5)
	buy("ann", 100, 5) // the hats at the same time
	h.ExpectInAnyOrder(Attribution{"shoes", "ann", 100, 5 * time.Minute}, Attribution{"hats", "ann", 100, 0})
	buy("ann", 200, 10) // the shoes are just too long ago
	h.Expect(Attribution{"hats", "ann", 200, 5 * time.Minute})
	buy("bob", 300, 6) // comes late, but its click is still there
	h.Expect(Attribution{"hats", "bob", 300, time.Minute})
	click("ann", "coats", 9) // a click that comes after the purchase
	h.Expect(Attribution{"coats", "ann", 200, time.Minute})
	h.Watermark(at(60))
	buy("ann", 400, 11)
	h.Expect()
	forgotten.Expect(Purchase{"ann", 400, at(11)})
}

func TestProgram(t *testing.T) {
	const n = 200
	var out streamtest.Output[Attribution]
	var dropped streamtest.Output[Purchase]
	streamtest.Start(t, build, streamtest.Sink("out", &out), streamtest.Sink("late", &dropped), streamtest.Args("-purchases", "200")).End()
	var want []Attribution
	for i := range int64(n) {
		for j := range int64(n) {
			p, c := purchase(i), click(j)
			if d := p.At.Sub(c.At); p.User == c.User && d >= 0 && d < reach {
				want = append(want, Attribution{c.Ad, p.User, p.Cents, d})
			}
		}
	}
	dropped.Expect()
	out.ExpectInAnyOrder(want...)
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, []string{"-purchases", "20"}, 20, "ad-0: user-0 bought for 1000 cents after 0s")
}
