package faults

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// memoryGroups is the kernel's controller of memory (cgroup v1), as far as it has one.
const memoryGroups = "/sys/fs/cgroup/memory"

// outOfMemory ends a process of the job as the kernel ends one that is over its limit: it is put into a group that has no room for another page.
// It takes root.
func outOfMemory(k Kind) Fault {
	return Fault{Name: string(k) + " is over its memory limit", Root: true, Do: func(ctx context.Context, r *run) error {
		p, err := r.one(k)
		if err != nil {
			return err
		}
		group, err := os.MkdirTemp(memoryGroups, "thalweg-faults-")
		if err != nil {
			return fmt.Errorf("faults: %w", err)
		}
		r.logf("no memory for the %s, pid %d of %s", k, p.pid, p.container)
		err = os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte("65536"), 0o600)
		if err == nil {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.pid)), 0o600)
		}
		if err == nil && k == TaskManager { // which needs no page while it has nothing to do: let it start a worker
			err = killWorkersOf(r, p.container)
		}
		if err == nil {
			err = r.gone(ctx, p)
		}
		return errors.Join(err, until(context.WithoutCancel(ctx), 10*time.Second, "the end of "+group, func(context.Context) (bool, error) {
			err := os.Remove(group)
			return err == nil || errors.Is(err, iofs.ErrNotExist), err
		}))
	}}
}

// killWorkersOf kills the workers of a container.
func killWorkersOf(r *run, container string) error {
	all, err := processes(r.job.app)
	for _, p := range all {
		if p.kind == Worker && p.container == container {
			err = errors.Join(err, syscall.Kill(p.pid, syscall.SIGKILL))
		}
	}
	return err
}

// memoryFaults are those that the kernel of this machine can do.
func memoryFaults() []Fault {
	if _, err := os.Stat(filepath.Join(memoryGroups, "cgroup.procs")); err != nil {
		return nil
	}
	return []Fault{outOfMemory(Worker), outOfMemory(TaskManager)}
}
