package meta

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/stream"
)

var (
	seed   = flag.Uint64("seed", 1, "of the input, and of the first random case")
	random = flag.Int("n", 4, "random cases beside the fixed ones")
	only   = flag.String("case", "", "run this case only: key=value, with semicolons")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a case and compares; "" when all is as it should be.
func run(t *testing.T, seed uint64, c *Case) string {
	t.Helper()
	conf := maps.Clone(c.Conf)
	if conf["execution.checkpointing.interval"] != "" {
		conf["execution.checkpointing.dir"] = "file://" + t.TempDir()
	}
	conf["io.tmp.dirs"] = t.TempDir()
	out, fail := &box{txns: map[int64][]string{}}, &failing{at: c.Fail}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := stream.RunLocal(ctx, "meta", build(seed, c, out, fail), stream.LocalOptions{Config: conf, Logger: zerolog.Nop()}); err != nil {
		return fmt.Sprintf("the job failed: %v", err)
	}
	if ctx.Err() != nil {
		return "the job does not end"
	}
	if len(c.Fail) > 0 && fail.passed.Load() <= clicks {
		return "nothing was read again, so nothing had failed"
	}
	return compare(out.lines(), reference(seed, c.Pad))
}

func compare(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d results, want %d", len(got), len(want))
	count := map[string]int{}
	for _, l := range got {
		count[l]++
	}
	for _, l := range want {
		count[l]--
	}
	n := 0
	for _, l := range slices.Sorted(maps.Keys(count)) {
		if count[l] == 0 {
			continue
		}
		if n++; n <= 20 {
			fmt.Fprintf(&b, "\n  %+d  %s", count[l], l)
		}
	}
	if n > 20 {
		fmt.Fprintf(&b, "\n  and %d more", n-20)
	}
	return b.String()
}

// smaller takes options away as long as the case fails.
func smaller(t *testing.T, seed uint64, c *Case) *Case {
	t.Helper()
	for _, option := range slices.Sorted(maps.Keys(c.options())) {
		less, err := c.without(option)
		if err != nil {
			t.Fatal(err)
		}
		if run(t, seed, less) != "" {
			c = less
		}
	}
	return c
}

// TestComparisonSeesEachFault holds the comparison to its word.
func TestComparisonSeesEachFault(t *testing.T) {
	want := reference(1, 0)
	for name, got := range map[string][]string{
		"one lost":    want[1:],
		"one twice":   append(slices.Clone(want), want[7]),
		"one changed": append(slices.Clone(want[1:]), want[0]+"0"),
	} {
		if compare(got, want) == "" {
			t.Errorf("%s: nothing was found", name)
		}
	}
	if wrong := compare(want, reference(1, 0)); wrong != "" {
		t.Error(wrong)
	}
	if compare(reference(2, 0), want) == "" {
		t.Error("another seed gives the same results")
	}
}

// TestCasesCanBeWritten: what a failure prints is what repeats it.
func TestCasesCanBeWritten(t *testing.T) {
	for s := range uint64(200) {
		c := Random(s)
		again, err := ParseCase(c.String())
		if err != nil || again.String() != c.String() {
			t.Fatalf("%s becomes %s, %v", c, again, err)
		}
	}
}

// TestAllConfigurationsAgree runs the job under every case, and holds its output against the reference's.
func TestAllConfigurationsAgree(t *testing.T) {
	var cases []*Case
	for _, text := range Odd {
		c, err := ParseCase(text)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	for i := range *random {
		cases = append(cases, Random(*seed+uint64(i)))
	}
	if *only != "" {
		c, err := ParseCase(*only)
		if err != nil {
			t.Fatal(err)
		}
		cases = []*Case{c}
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			began := time.Now()
			wrong := run(t, *seed, c)
			t.Logf("%s: %s", c, time.Since(began).Round(time.Millisecond))
			if wrong == "" {
				return
			}
			s := smaller(t, *seed, c)
			t.Errorf("%s\nunder %s\nthe options that matter; repeat it with: make meta SEED=%d CASE='%s'", wrong, c, *seed, s)
		})
	}
}
