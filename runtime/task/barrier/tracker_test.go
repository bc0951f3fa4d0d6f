package barrier

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAtLeastOnceAgainstModel: channels deliver the barriers of several checkpoints that are under way, each in its order and in its time,
// some of them none of one that was given up upstream. A checkpoint is started by the last of its barriers, unless it was aborted.
func TestAtLeastOnceAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "channels")
		a := New(n, true)
		now := time.Unix(0, 0)
		next := make([]int64, n) // the last barrier of each channel
		ended := make([]bool, n)
		got := map[int64]map[int]bool{}
		first := map[int64]time.Time{}
		aborted := map[int64]bool{}
		latest := int64(0)
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			now = now.Add(time.Millisecond)
			ch := rapid.IntRange(0, n-1).Draw(t, "channel")
			var effects []Effect
			var wantAborted []int64
			switch kind := rapid.SampledFrom([]string{"barrier", "barrier", "barrier", "barrier", "abort", "end"}).Draw(t, "kind"); {
			case kind == "barrier" && !ended[ch]:
				next[ch] += int64(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "step"))
				id := next[ch]
				effects = a.OnBarrier(ch, Barrier{ID: id}, now)
				if id > latest && !aborted[id] {
					if got[id] == nil {
						got[id], first[id] = map[int]bool{}, now
					}
					got[id][ch] = true
				}
			case kind == "abort":
				id := latest + int64(rapid.IntRange(0, 4).Draw(t, "id"))
				effects = a.OnAbort(id, now)
				if got[id] != nil {
					wantAborted = append(wantAborted, id)
					delete(got, id)
				}
				if id > latest {
					aborted[id] = true
				}
			case kind == "end" && !ended[ch] && rapid.IntRange(0, 4).Draw(t, "rarely") == 0:
				ended[ch] = true
				effects = a.OnEndOfPartition(ch, now)
			}
			var wantStarted []int64
			for id := latest + 1; id < latest+200; id++ {
				all := got[id] != nil
				for c := range n {
					all = all && (got[id][c] || ended[c])
				}
				if !all {
					continue
				}
				for other := range got {
					if other < id {
						wantAborted = append(wantAborted, other)
						delete(got, other)
					}
				}
				wantStarted = append(wantStarted, id)
				delete(got, id)
				latest = id
			}
			var started, given []int64
			for _, e := range effects {
				if e.Alignment != now.Sub(first[e.Barrier.ID]) {
					t.Fatalf("%s; its first barrier came %v ago", e, now.Sub(first[e.Barrier.ID]))
				}
				switch e.Kind {
				case Start:
					started = append(started, e.Barrier.ID)
				case Abort:
					given = append(given, e.Barrier.ID)
				default:
					t.Fatalf("%s, at least once", e)
				}
			}
			slices.Sort(wantAborted)
			if !slices.Equal(started, wantStarted) || !slices.Equal(given, wantAborted) {
				t.Fatalf("started %v, gave up %v; want %v, %v", started, given, wantStarted, wantAborted)
			}
			if _, _, pending := a.Pending(); pending != (len(got) > 0) {
				t.Fatalf("pending %t, want %v", pending, got)
			}
		}
	})
}

// TestSeveralCheckpointsUnderWay: exactly-once, each channel delivers numbers and, between them, the barriers of several checkpoints. What a
// checkpoint holds is what stands in front of its barrier in every channel, however far one is ahead of the other; one that is aborted
// while its barriers come holds up none of the others.
func TestSeveralCheckpointsUnderWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, checkpoints := rapid.IntRange(1, 4).Draw(t, "channels"), rapid.IntRange(1, 5).Draw(t, "checkpoints")
		queues := make([][]int64, n) // 0: a record; else the barrier
		cut := make([]map[int64]int, n)
		for ch := range queues {
			cut[ch] = map[int64]int{}
			records := 0
			for id := int64(1); id <= int64(checkpoints); id++ {
				k := rapid.IntRange(0, 3).Draw(t, "records")
				records += k
				queues[ch] = append(queues[ch], make([]int64, k)...)
				queues[ch] = append(queues[ch], id)
				cut[ch][id] = records
			}
		}
		a := New(n, false)
		blocked, read := make([]bool, n), make([]int, n)
		done, aborted := map[int64]bool{}, map[int64]bool{}
		apply := func(effects []Effect) {
			for _, e := range effects {
				switch e.Kind {
				case Block, Unblock:
					blocked[e.Channel] = e.Kind == Block
				case Start:
					id := e.Barrier.ID
					if done[id] || aborted[id] {
						t.Fatalf("%s, which is over", e)
					}
					done[id] = true
					for ch := range n {
						if read[ch] != cut[ch][id] {
							t.Fatalf("%s: %d records of channel %d are in it, %d stand in front of its barrier", e, read[ch], ch, cut[ch][id])
						}
					}
				case Abort:
					if e.Reason != Requested {
						t.Fatalf("%s: nobody gave it up", e)
					}
				default:
					t.Fatalf("%s", e)
				}
			}
		}
		for left := true; left; {
			if rapid.IntRange(0, 9).Draw(t, "abort") == 0 {
				if id := int64(rapid.IntRange(1, checkpoints).Draw(t, "which")); !done[id] {
					aborted[id] = true
					apply(a.OnAbort(id, time.Unix(0, 0)))
				}
			}
			left = false
			first := rapid.IntRange(0, n-1).Draw(t, "channel")
			for i := range n {
				ch := (first + i) % n
				if blocked[ch] || len(queues[ch]) == 0 {
					continue
				}
				left = true
				next := queues[ch][0]
				queues[ch] = queues[ch][1:]
				if next == 0 {
					read[ch]++
				} else {
					apply(a.OnBarrier(ch, Barrier{ID: next}, time.Unix(0, 0)))
				}
				break
			}
		}
		for id := int64(1); id <= int64(checkpoints); id++ {
			if done[id] == aborted[id] {
				t.Fatalf("checkpoint %d: started %t, aborted %t", id, done[id], aborted[id])
			}
		}
	})
}
