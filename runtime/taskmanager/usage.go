package taskmanager

import (
	"bytes"
	"os"
	"strconv"
)

const clockTicks = 100 // USER_HZ, fixed on Linux

// usage reads a process's resident bytes and CPU seconds from /proc; zeros when it is gone.
func usage(pid int) (rss int64, cpu float64) {
	dir := "/proc/" + strconv.Itoa(pid)
	if b, err := os.ReadFile(dir + "/statm"); err == nil {
		if f := bytes.Fields(b); len(f) > 1 {
			pages, _ := strconv.ParseInt(string(f[1]), 10, 64)
			rss = pages * int64(os.Getpagesize())
		}
	}
	if b, err := os.ReadFile(dir + "/stat"); err == nil {
		// The second field is the name in parentheses and may hold blanks.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 {
			if f := bytes.Fields(b[i+1:]); len(f) > 12 {
				user, _ := strconv.ParseInt(string(f[11]), 10, 64)
				sys, _ := strconv.ParseInt(string(f[12]), 10, 64)
				cpu = float64(user+sys) / clockTicks
			}
		}
	}
	return rss, cpu
}
