package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// checked adds a check of the value.
func (o *Option[T]) checked(check func(T) error) *Option[T] {
	o.check = check
	return o
}

func noLess(least time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if d < least {
			return fmt.Errorf("want at least %s", formatDuration(least))
		}
		return nil
	}
}

func zeroOr(least time.Duration) func(time.Duration) error {
	return func(d time.Duration) error {
		if d != 0 && d < least {
			return fmt.Errorf("want 0 or at least %s", formatDuration(least))
		}
		return nil
	}
}

func minusOneOr(least, most int) func(int) error {
	return func(n int) error {
		if n != -1 && (n < least || n > most) {
			return fmt.Errorf("want -1 or a number from %d to %d", least, most)
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

func between(least, most int) func(int) error {
	return func(n int) error {
		if n < least || n > most {
			return fmt.Errorf("want at least %d, at most %d", least, most)
		}
		return nil
	}
}

// folder accepts a URI with a path and an absolute path: a relative one would mean another folder in each process.
func folder(s string) error {
	if scheme, rest, ok := strings.Cut(s, ":"); s == "" || strings.HasPrefix(s, "/") || ok && scheme != "" && !strings.Contains(scheme, "/") && strings.HasPrefix(rest, "/") {
		return nil
	}
	return errors.New("want a URI such as hdfs://namenode:8020/path or file:///path, or an absolute path")
}
