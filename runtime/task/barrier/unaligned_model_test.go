package barrier

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestUnalignedAgainstNaiveModel checks any mixture of barriers that overtake, barriers that do not, timeouts, ends and aborts: what is in
// front of each channel's barrier belongs to the checkpoint, once. Each channel delivers numbers; the model has for each channel the number at
// which its barrier was put, and adds up what the aligner lets into the checkpoint: before its start, or between it and the channel's cut.
func TestUnalignedAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "channels")
		a := New(n, false)
		now := time.Unix(0, 0)
		type ch struct {
			before   int  // records in front of the barrier that were not delivered yet
			came     bool // the barrier
			ended    bool
			blocked  bool
			taken    int // of the records in front, by the checkpoint: before its start, recorded, or overtaken
			recorded bool
		}
		chs := make([]ch, n)
		started, unaligned, over, id := false, false, false, int64(0)
		put := make([]int, n)
		begin := func() {
			id++
			started, unaligned, over = false, false, false
			for i := range chs {
				chs[i].before, chs[i].came, chs[i].taken = rapid.IntRange(0, 3).Draw(t, "records"), false, 0
				put[i] = chs[i].before
			}
		}
		apply := func(effects []Effect) {
			for _, e := range effects {
				switch e.Kind {
				case Block, Unblock:
					if chs[e.Channel].blocked == (e.Kind == Block) {
						t.Fatalf("%s, but it was so already", e)
					}
					chs[e.Channel].blocked = e.Kind == Block
				case Start:
					if started || e.Barrier.ID != id {
						t.Fatalf("%s, the second", e)
					}
					started, unaligned = true, e.Unaligned
					over = !e.Unaligned
				case Cut:
					if !unaligned || chs[e.Channel].recorded {
						t.Fatalf("%s after %+v", e, chs[e.Channel])
					}
					chs[e.Channel].recorded = true
				case Complete:
					if !unaligned || over || e.Barrier.ID != id {
						t.Fatalf("%s out of turn", e)
					}
					over = true
				case Abort:
					if e.Barrier.ID != id || over {
						t.Fatalf("%s of what is not pending", e)
					}
					over = true
				}
			}
		}
		begin()
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			now = now.Add(time.Millisecond)
			i := rapid.IntRange(0, n-1).Draw(t, "channel")
			c := &chs[i]
			switch kind := rapid.SampledFrom([]string{"record", "record", "barrier", "overtaking", "timeout", "end", "abort"}).Draw(t, "kind"); {
			case kind == "record" && c.before > 0 && !c.ended:
				if c.blocked {
					t.Fatalf("channel %d is blocked in front of its barrier", i)
				}
				if started && unaligned && !over && !a.Open(i) {
					t.Fatalf("channel %d is cut in front of its barrier", i)
				}
				c.before--
				c.taken++ // its effect is in the state, or it is recorded since the channel is open
			case (kind == "barrier" && c.before == 0 || kind == "overtaking") && !c.came && !c.ended && !over:
				if kind == "overtaking" {
					c.taken += c.before // the gate gives it to the task with the barrier
				}
				c.before, c.came, c.recorded = 0, true, false
				apply(a.OnBarrier(i, Barrier{ID: id, Unaligned: kind == "overtaking"}, now))
			case kind == "timeout":
				apply(a.OnTimeout(id, now))
			case kind == "end" && c.before == 0 && rapid.IntRange(0, 9).Draw(t, "rarely") == 0:
				c.ended, c.recorded = true, false
				apply(a.OnEndOfPartition(i, now))
			case kind == "abort" && !over:
				apply(a.OnAbort(id, now))
				over = true
			}
			open := false
			for i := range chs {
				open = open || a.Open(i)
				if chs[i].blocked && (!chs[i].came || started) {
					t.Fatalf("channel %d is blocked: %+v", i, chs[i])
				}
			}
			if over {
				if open {
					t.Fatal("a channel is open after the end of the checkpoint")
				}
				for i := range chs {
					if c := &chs[i]; started && !c.ended && c.came && c.taken != put[i] {
						t.Fatalf("channel %d: %d of the %d records in front of the barrier are in the checkpoint", i, c.taken, put[i])
					}
				}
				begin()
			}
		}
	})
}
