package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// checked adds a check of the value.
func (o *Option[T]) checked(check func(T) error) *Option[T] {
	o.check = check
	return o
}

const (
	maxInt = math.MaxInt32 // "for ever" of Flink's users, and what YARN's messages hold
	// longest keeps sums of durations and instants far from the ends of their types.
	longest = 100 * 365 * 24 * time.Hour
)

func between[T cmp.Ordered](least, most T) func(T) error {
	return func(v T) error {
		if v < least || v > most {
			return fmt.Errorf("want a number from %v to %v", least, most)
		}
		return nil
	}
}

// share checks a part of a whole that leaves something over.
func share(f float64) error {
	if f < 0 || f >= 1 {
		return errors.New("want a share from 0 to below 1")
	}
	return nil
}

func minusOneOr(least, most int) func(int) error {
	return func(n int) error {
		if n != -1 && (n < least || n > most) {
			return fmt.Errorf("want -1 or a number from %d to %d", least, most)
		}
		return nil
	}
}

func within(least, most time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if d < least || d > most {
			return fmt.Errorf("want %s to %s", formatDuration(least), formatDuration(most))
		}
		return nil
	}
}

func from(least time.Duration) func(time.Duration) error { return within(least, longest) }

func zeroOr(least time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if err := from(least)(d); d != 0 && err != nil {
			return fmt.Errorf("want 0, or %s", strings.TrimPrefix(err.Error(), "want "))
		}
		return nil
	}
}

// minusOneMs allows -1 (milliseconds), Flink's "no", beside what check allows.
func minusOneMs(check func(time.Duration) error) func(time.Duration) error {
	return func(d time.Duration) error {
		if err := check(d); d != -time.Millisecond && err != nil {
			return fmt.Errorf("want -1, or %s", strings.TrimPrefix(err.Error(), "want "))
		}
		return nil
	}
}

func betweenBytes(least, most Bytes) func(Bytes) error {
	return func(n Bytes) error {
		if n < least || n > most {
			return fmt.Errorf("want %s to %s", least, most)
		}
		return nil
	}
}

// ports checks a port, a range "8081-8090", or a comma list of both.
func ports(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			to = from
		}
		a, aerr := strconv.Atoi(strings.TrimSpace(from))
		b, berr := strconv.Atoi(strings.TrimSpace(to))
		if aerr != nil || berr != nil || a < 0 || b > 65535 || a > b {
			return errors.New("want ports up to 65535, such as 8081, 8081-8090 or 8081,8090-8099")
		}
	}
	return nil
}

// folder accepts a URI with a path and an absolute path: a relative one would mean another folder in each process.
func folder(s string) error {
	if scheme, rest, ok := strings.Cut(s, ":"); s == "" || strings.HasPrefix(s, "/") || ok && scheme != "" && !strings.Contains(scheme, "/") && strings.HasPrefix(rest, "/") {
		return printable(s)
	}
	return errors.New("want a URI such as hdfs://namenode:8020/path or file:///path, or an absolute path")
}

// printable checks a text that travels to YARN, into paths and log lines.
func printable(s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return errors.New("want a text of one line, without control characters")
	}
	return nil
}

// Check looks at what options mean together; each by itself is checked by Validate before. Errors name all keys that take part.
func Check(c Configuration) error {
	var errs problems
	if beat, timeout := HeartbeatInterval.Value(c), HeartbeatTimeout.Value(c); timeout <= beat {
		errs = append(errs, fmt.Errorf("config: %s = %s is not longer than %s = %s: every process would count as dead between two heartbeats; raise the first, or lower the second",
			HeartbeatTimeout.Key, formatDuration(timeout), HeartbeatInterval.Key, formatDuration(beat)))
	}
	if first, most := ExponentialInitial.Value(c), ExponentialMax.Value(c); most < first {
		errs = append(errs, fmt.Errorf("config: %s = %s is shorter than %s = %s: raise the first, or lower the second",
			ExponentialMax.Key, formatDuration(most), ExponentialInitial.Key, formatDuration(first)))
	}
	if err := CheckUnaligned(c); err != nil {
		errs = append(errs, err)
	}
	return errs.err()
}

// CheckUnaligned refuses unaligned checkpoints of a job whose barriers are not aligned anyway, and several at a time: what is under way
// belongs to one. Source: Flink CheckpointCoordinatorConfiguration; of at-least-once Flink warns, and ignores the key.
func CheckUnaligned(c Configuration) error {
	if !Unaligned.Value(c) {
		return nil
	}
	if AtLeastOnce(c) {
		return fmt.Errorf("config: %s = true needs %s = exactly_once, it is %s: where nothing waits for barriers they have nothing to overtake; leave the first out, or change the second",
			Unaligned.Key, CheckpointMode.Key, CheckpointMode.Value(c))
	}
	if n := ConcurrentCheckpoints(c); n > 1 {
		return fmt.Errorf("config: %s = true and %s = %d: unaligned checkpoints are taken one at a time; leave one of the two out", Unaligned.Key, CheckpointsAtOnce.Key, n)
	}
	return nil
}
