package taskmanager_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

// Local copies of a killed worker are there for the next one, on each disk. They go when the job ends, also when its worker is dead by then,
// and with the TaskManager.
func TestLocalCopiesOutliveTheirWorker(t *testing.T) {
	for _, configured := range []bool{false, true} {
		t.Run(fmt.Sprintf("configured=%t", configured), func(t *testing.T) {
			mine, disks := t.TempDir(), 2
			r := start(t, func(o *taskmanager.Options) {
				if configured {
					disks = 1
					o.Config = config.Configuration{config.LocalBackupDirs.Key: "/proc/nosuch," + mine}
				}
			})
			r.accept(1)
			copies := func() (of []string) {
				for _, parent := range []string{r.dir + "/*", mine} {
					all, err := filepath.Glob(filepath.Join(parent, "thalweg-*", "localState", "*", "chk-1", "*"))
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range all {
						if strings.HasPrefix(f, mine) != configured {
							t.Errorf("a copy at %s", f)
						}
						of = append(of, filepath.Base(f))
					}
				}
				slices.Sort(of)
				return of
			}
			kill := func() string {
				t.Helper()
				pid := r.hello().GetPid()
				if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				r.exited()
				return fmt.Sprint(pid)
			}
			await := func(n int) {
				t.Helper()
				for len(copies()) != n {
					jobtest.Pause()
				}
			}
			stop := func(grace int64) {
				r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StopWorker{StopWorker: &pb.StopWorker{JobId: "0a0b0c0d", GraceMs: grace}}})
			}
			r.startWorker("serve")
			first := kill()
			r.startWorker("serve")
			second := kill()
			if got := copies(); len(got) != 2*disks || !slices.Contains(got, first) || !slices.Contains(got, second) {
				t.Fatalf("%v after %s and %s", got, first, second)
			}
			stop(1000) // the worker is dead
			await(0)
			r.startWorker("serve")
			r.hello()
			stop(0) // it hangs, for all that the JobMaster knows: another one will follow
			r.exited()
			await(disks)
			r.startWorker("serve")
			r.hello()
			stop(1000)
			r.exited()
			await(0)
			r.startWorker("serve")
			kill()
			await(disks)
			r.stop()
			if err := <-r.done; err != nil {
				t.Fatal(err)
			}
			r.ended = true
			if left, err := os.ReadDir(mine); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
			await(0)
		})
	}
}
