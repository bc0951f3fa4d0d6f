package barrier

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/transcript"
)

func (e Effect) String() string {
	switch e.Kind {
	case Block:
		return fmt.Sprintf("block %d", e.Channel)
	case Unblock:
		return fmt.Sprintf("unblock %d", e.Channel)
	case Start:
		s := fmt.Sprintf("start %d aligned-in=%s", e.Barrier.ID, e.Alignment)
		if e.Unaligned {
			s = fmt.Sprintf("start %d unaligned after=%s", e.Barrier.ID, e.Alignment)
		}
		if e.Barrier.Options != 0 {
			s += fmt.Sprintf(" options=%d", e.Barrier.Options)
		}
		return s
	case Abort:
		return fmt.Sprintf("abort %d reason=%s after=%s", e.Barrier.ID, map[Reason]string{Subsumed: "subsumed", Requested: "requested"}[e.Reason], e.Alignment)
	case Cut:
		return fmt.Sprintf("cut %d", e.Channel)
	case Complete:
		return fmt.Sprintf("complete %d after=%s", e.Barrier.ID, e.Alignment)
	}
	return fmt.Sprintf("effect %d", e.Kind)
}

// TestTranscripts runs testdata/*.txt: a script of commands, each followed by its effects, indented. Commands: "new CHANNELS
// [at-least-once]", "barrier CHANNEL ID [OPTIONS]", "overtaking CHANNEL ID" (an unaligned barrier), "timeout ID", "end CHANNEL", "abort ID",
// "after DURATION" (the clock), "pending", "open" (the channels that are).
func TestTranscripts(t *testing.T) { transcript.Run(t, run) }

func run(t *testing.T, script string) string {
	var out strings.Builder
	var a *Aligner
	now := time.Unix(0, 0)
	for sc := bufio.NewScanner(strings.NewReader(script)); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&out, line)
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		num := func(i int) int {
			if i >= len(f) {
				return 0
			}
			n, err := strconv.Atoi(f[i])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
		var effects []Effect
		switch f[0] {
		case "new":
			a = New(num(1), len(f) > 2)
		case "after":
			d, err := time.ParseDuration(f[1])
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
		case "barrier":
			effects = a.OnBarrier(num(1), Barrier{ID: int64(num(2)), Options: uint8(num(3))}, now)
		case "overtaking":
			effects = a.OnBarrier(num(1), Barrier{ID: int64(num(2)), Unaligned: true}, now)
		case "timeout":
			effects = a.OnTimeout(int64(num(1)), now)
		case "open":
			var open []int
			for ch := range len(a.c.channels) {
				if a.Open(ch) {
					open = append(open, ch)
				}
			}
			fmt.Fprintf(&out, "  %v\n", open)
		case "end":
			effects = a.OnEndOfPartition(num(1), now)
		case "abort":
			effects = a.OnAbort(int64(num(1)), now)
		case "pending":
			if id, since, ok := a.Pending(); ok {
				fmt.Fprintf(&out, "  %d for %s\n", id, now.Sub(since))
			} else {
				fmt.Fprintln(&out, "  none")
			}
		default:
			t.Fatalf("unknown command %q", line)
		}
		for _, e := range effects {
			fmt.Fprintf(&out, "  %s\n", e)
		}
	}
	return out.String()
}
