package rig

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startMissing starts the daemons that are not in up, those of a stage all at once: they wait for each other themselves. It returns those it started.
func (c *Cluster) startMissing(ctx context.Context, up []string) ([]string, error) {
	var started []string
	stages := c.stages()
	for i, stage := range stages {
		more, err := c.startStage(ctx, stage, up)
		started = append(started, more...)
		if err == nil && i < len(stages)-1 {
			err = c.awaitAll(ctx, stage)
		}
		if err == nil && slices.Contains(stage, KDC) {
			err = c.tickets(ctx)
		}
		if err != nil {
			return started, err
		}
	}
	return started, nil
}

func (c *Cluster) startStage(ctx context.Context, stage, up []string) ([]string, error) {
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		started []string
		errs    []error
	)
	for _, name := range stage {
		if slices.Contains(up, name) {
			continue
		}
		wg.Go(func() {
			err := c.launch(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			started = append(started, name)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return started, errors.Join(errs...)
}

// launch formats what is new and starts the process.
func (c *Cluster) launch(ctx context.Context, name string) error {
	d, err := c.daemon(name)
	if err != nil {
		return err
	}
	if err := c.awaitPorts(ctx, d); err != nil {
		return err
	}
	for _, dir := range []string{c.layout.tmp(name), filepath.Dir(c.layout.pid(name)), filepath.Dir(c.layout.log(name))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("rig: start %s: %w", name, err)
		}
	}
	if err := c.format(ctx, d); err != nil {
		return err
	}
	if err := os.Truncate(c.layout.out(name), 0); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("rig: start %s: %w", name, err)
	}
	pid, err := spawn(ctx, c.layout.dir, c.layout.out(name), c.daemonEnv(d), c.argv(d))
	if err != nil {
		return fmt.Errorf("rig: %s: %w", name, err)
	}
	return writeFile(c.layout.pid(name), []byte(strconv.Itoa(pid)+"\n"), 0o644)
}

// daemonEnv gives the daemons a plain environment: what the caller has set for itself must not reach YARN's containers.
func (c *Cluster) daemonEnv(d daemon) []string {
	if d.exec != nil {
		return d.env
	}
	env := []string{"JAVA_HOME=" + c.state.JavaHome, "LANG=C.UTF-8", "PATH=" + filepath.Join(c.state.JavaHome, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, k := range []string{"HOME", "USER", "LOGNAME", "TZ"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return append(env, d.env...)
}

// awaitPorts waits until the ports are free: a daemon that just ended may hold them for a moment, and its last connections for a minute.
func (c *Cluster) awaitPorts(ctx context.Context, d daemon) error {
	begin := time.Now()
	told := false
	return poll(ctx, timeWait, 50*time.Millisecond, func() error {
		for _, o := range d.ports {
			l, err := net.Listen("tcp", net.JoinHostPort(c.state.hostOf(d.name), strconv.Itoa(c.state.PortBase+o)))
			if err == nil {
				_ = l.Close()
				continue
			}
			port := c.state.PortBase + o
			held := holderOf(port)
			err = fmt.Errorf("rig: start %s: %s", d.name, held.text(port))
			if held.waits && !told {
				told = true
				c.runner.progress("%s waits: %s", d.name, held.text(port))
			}
			if !held.waits && time.Since(begin) > 30*time.Second {
				return &stopPoll{err}
			}
			return err
		}
		return nil
	})
}

// format prepares the storage of a NameNode or broker that has none.
func (c *Cluster) format(ctx context.Context, d daemon) error {
	marker := filepath.Join(c.layout.data(d.name), "current", "VERSION")
	switch d.name {
	case NameNode:
		d.args = []string{"-format", "-force", "-nonInteractive", "-clusterId", "thalweg-rig"}
	case NameNode2:
		d.args = []string{"-bootstrapStandby", "-force", "-nonInteractive"}
	case ZKFC:
		marker = c.layout.data(d.name) // the data are ZooKeeper's
		d.args = []string{"-formatZK", "-force", "-nonInteractive"}
	case Kafka:
		marker = filepath.Join(c.layout.data(d.name), "meta.properties")
		var id [16]byte
		_, _ = rand.Read(id[:])
		id[0] &= 0x7f // the tool takes an id that begins with a dash for an option
		d.class = "kafka.tools.StorageTool"
		d.args = []string{"format", "--config", filepath.Join(c.layout.conf(), "kafka.properties"), "--cluster-id", base64.RawURLEncoding.EncodeToString(id[:])}
		d.args = append(d.args, c.kafkaFormatArgs()...)
	default:
		return nil
	}
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	argv := c.argv(d)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = c.layout.dir, c.daemonEnv(d), 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.WriteFile(c.layout.out(d.name), out, 0o644)
		return fmt.Errorf("rig: format %s: %w: %s (log: %s)", d.name, err, lastError(c.layout.out(d.name), c.layout.log(d.name)), c.layout.log(d.name))
	}
	if d.name == ZKFC {
		return os.MkdirAll(marker, 0o755)
	}
	if _, err := os.Stat(marker); err != nil {
		return fmt.Errorf("rig: format %s: the tool ended well but %s is missing", d.name, marker)
	}
	return nil
}

// awaitAll waits for the daemons and reports each as it becomes ready.
func (c *Cluster) awaitAll(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if errs[i] = c.await(ctx, name, readyWait); errs[i] != nil {
				cancel() // the others would only wait for it
				return
			}
			c.runner.progress("%s is ready (%.1f s)", name, time.Since(begin).Seconds())
		})
	}
	wg.Wait()
	// The first cause is worth more than those that were cut short by it.
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

// await waits until the daemon serves; one that has died ends the wait at once.
func (c *Cluster) await(ctx context.Context, name string, limit time.Duration) error {
	err := poll(ctx, limit, 100*time.Millisecond, func() error {
		if c.layout.running(name) == 0 {
			return &stopPoll{fmt.Errorf("it died: %s%s", lastError(c.layout.out(name), c.layout.log(name)), c.portsTaken(name))}
		}
		return c.ready(ctx, name)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("rig: wait for %s: %w (last: %w; log: %s)", name, ctx.Err(), err, c.LogFile(name))
	}
	return fmt.Errorf("rig: wait for %s: %w (log: %s)", name, err, c.LogFile(name))
}

// Restart stops the daemon in order (SIGTERM), starts it again and waits until it serves.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	if err := c.StopDaemon(ctx, name); err != nil {
		return err
	}
	return c.StartDaemon(ctx, name)
}

// StopDaemon ends the daemon by SIGTERM, after 15 s by SIGKILL, and waits until it is gone. A NodeManager's containers live on.
func (c *Cluster) StopDaemon(ctx context.Context, name string) error {
	if c.External {
		return c.errExternal(name)
	}
	if _, err := c.daemon(name); err != nil {
		return err
	}
	return c.endDaemon(ctx, name, false)
}

// Kill9 ends the daemon by SIGKILL and waits until it is gone.
func (c *Cluster) Kill9(ctx context.Context, name string) error {
	if c.External {
		return c.errExternal(name)
	}
	if _, err := c.daemon(name); err != nil {
		return err
	}
	return c.endDaemon(ctx, name, true)
}

// StartDaemon starts a daemon that was stopped or killed and waits until it serves.
func (c *Cluster) StartDaemon(ctx context.Context, name string) error {
	if c.External {
		return c.errExternal(name)
	}
	if _, err := c.daemon(name); err != nil {
		return err
	}
	// A daemon that follows a killed one may find a port of it still taken, and ends; it is started once more.
	for again := false; ; again = true {
		if c.layout.running(name) == 0 {
			if err := c.launch(ctx, name); err != nil {
				return err
			}
		}
		err := c.await(ctx, name, restartWait)
		if err == nil || again || ctx.Err() != nil || c.layout.running(name) != 0 {
			return err
		}
	}
}

// Pause stops the daemon's process where it is (SIGSTOP): its connections stay open and nothing answers, once it returns. Resume lets it go on.
func (c *Cluster) Pause(name string) error {
	if err := c.signal(name, syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(context.Background(), killWait, time.Millisecond, func() error { return allStopped(c.layout.running(name)) })
}

// Resume is the end of Pause.
func (c *Cluster) Resume(name string) error { return c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, sig syscall.Signal) error {
	pid := c.layout.running(name)
	if pid == 0 {
		return fmt.Errorf("rig: signal %s: it does not run", name)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("rig: signal %s: %w", name, err)
	}
	return nil
}

// PID is the process id of the daemon, 0 when it does not run.
func (c *Cluster) PID(name string) int { return c.layout.running(name) }

func (c *Cluster) endDaemon(ctx context.Context, name string, hard bool) error {
	pid := c.layout.running(name)
	if pid != 0 {
		if err := end(ctx, []int{pid}, hard, func(p int) bool { return c.layout.isDaemon(p, name) }); err != nil {
			return fmt.Errorf("rig: stop %s: %w", name, err)
		}
	}
	return removeIfThere(c.layout.pid(name))
}

func (c *Cluster) endDaemons(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() { errs[i] = c.endDaemon(ctx, n, false) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Stop ends all daemons and whatever they left behind. The data stays for the next Start; Purge removes it.
func (c *Cluster) Stop(ctx context.Context) error {
	unlock, err := lockFile(ctx, c.layout.lock(), lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	// First those that would start or restart something, then what the others need while they stop.
	for _, group := range [][]string{
		{NodeManager1, NodeManager2, ResourceManager, ResourceManager2, Kafka}, {DataNode, DataNode2, ZKFC, ZKFC2}, {NameNode, NameNode2}, {JournalNode}, {ZooKeeper, KDC},
	} {
		if err := c.endDaemons(ctx, group); err != nil {
			return err
		}
	}
	return c.endStrays(ctx)
}

// endStrays kills containers that outlived their NodeManager. Killing one may show others (a process that had just forked), so it
// looks again until none is left.
func (c *Cluster) endStrays(ctx context.Context) error {
	err := poll(ctx, killWait, 50*time.Millisecond, func() error {
		left := c.layout.strays()
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
		return fmt.Errorf("processes %s still run", strings.Trim(fmt.Sprint(left), "[]"))
	})
	if err != nil {
		return fmt.Errorf("rig: stop the containers of %s: %w", c.Dir, err)
	}
	return nil
}

// Left lists processes of this cluster that still run, containers included. After Stop there are none.
func (c *Cluster) Left() []int { return c.layout.strays() }

// Containers lists the processes of this cluster's YARN containers, such as ApplicationMasters and what they started.
func (c *Cluster) Containers() []int {
	if c.External {
		return nil
	}
	return slices.DeleteFunc(c.layout.strays(), func(p int) bool {
		return contains(cmdline(p), markDir+c.layout.dir) || !c.layout.isContainer(p)
	})
}

// Purge removes all files of a stopped cluster but the jars, which other clusters share, and what others have put into its folder.
func (c *Cluster) Purge(ctx context.Context) error {
	if len(c.layout.strays()) > 0 {
		return fmt.Errorf("rig: purge %s: the cluster runs: stop it first", c.Dir)
	}
	unlock, err := lockFile(ctx, c.layout.lock(), lockWait)
	if err != nil {
		return err
	}
	defer unlock()
	return c.layout.remove()
}
