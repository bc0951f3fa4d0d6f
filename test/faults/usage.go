package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// usage is what processes of the application use, sampled after each fault.
type usage struct {
	rss, files map[Kind][]int // KiB and open descriptors, by kind, in the order of the samples: the largest of each sample
}

// sample reads /proc.
func (u *usage) sample(app string) error {
	all, err := processes(app)
	if err != nil {
		return err
	}
	if u.rss == nil {
		u.rss, u.files = map[Kind][]int{}, map[Kind][]int{}
	}
	rss, open := map[Kind]int{}, map[Kind]int{}
	for _, p := range all {
		proc := "/proc/" + strconv.Itoa(p.pid)
		status, err := os.ReadFile(proc + "/status")
		if err != nil {
			continue // it ended
		}
		fds, err := os.ReadDir(proc + "/fd")
		if err != nil {
			continue
		}
		for line := range bytes.Lines(status) {
			if f := strings.Fields(string(line)); len(f) > 1 && f[0] == "VmRSS:" {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					return fmt.Errorf("faults: %s/status: %w", proc, err)
				}
				rss[p.kind] = max(rss[p.kind], n)
			}
		}
		n := len(fds)
		if p.kind == ApplicationMaster { // the ResourceManager's proxy keeps a connection for each of the many questions of a run, for a while
			others, err := accepted(p.pid)
			if err != nil {
				continue
			}
			n -= others
		}
		open[p.kind] = max(open[p.kind], n)
	}
	for k, n := range rss {
		u.rss[k] = append(u.rss[k], n)
		u.files[k] = append(u.files[k], open[k])
	}
	return nil
}

// enough is how many samples say something of a trend.
const enough = 20

// flat compares the last quarter of the samples with the first one: what leaks with each fault shows.
func (u *usage) flat() error {
	var errs []error
	for k := range u.rss {
		if len(u.rss[k]) < enough {
			continue
		}
		if a, b := ends(u.rss[k]); b > a+a/2+64<<10 {
			errs = append(errs, fmt.Errorf("faults: the %s used %d MiB at first and %d MiB at last", k, a>>10, b>>10))
		}
		if a, b := ends(u.files[k]); b > a+a/4+16 {
			errs = append(errs, fmt.Errorf("faults: the %s had %d descriptors open at first and %d at last", k, a, b))
		}
	}
	return errors.Join(errs...)
}

// ends are the medians of the first and of the last quarter.
func ends(s []int) (first, last int) {
	q := len(s) / 4
	return median(s[:q]), median(s[len(s)-q:])
}

func median(s []int) int {
	s = slices.Sorted(slices.Values(s))
	return s[len(s)/2]
}
