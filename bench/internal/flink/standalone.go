package flink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/proc"
)

// Standalone is one JobManager and one TaskManager on this machine. Stop it.
type Standalone struct {
	REST   *REST
	home   *Home
	dir    string
	jm, tm *exec.Cmd
	jar    string // id of the uploaded jar
	enter  Enter
}

// Enter are the words of a shell that come before the start of a process, by its name (JobManagerName, TaskManagerName): they bring it into
// its control group.
type Enter map[string]string

// Names of the two processes.
const (
	JobManagerName  = "jobmanager"
	TaskManagerName = "taskmanager"
)

const (
	startWait = 3 * time.Minute
	stopWait  = 10 * time.Second
)

// Start starts a standalone cluster with its files below dir and waits until its slots are there.
func (h *Home) Start(ctx context.Context, dir string, settings map[string]string) (*Standalone, error) {
	return h.StartIn(ctx, dir, settings, nil)
}

// StartIn is Start with something to do before each process.
func (h *Home) StartIn(ctx context.Context, dir string, settings map[string]string, enter Enter) (_ *Standalone, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	s := &Standalone{home: h, dir: dir, enter: enter, REST: NewREST(fmt.Sprintf("http://localhost:%d", ports[0]))}
	for _, d := range []string{"conf", "log", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("flink: start: %w", err)
		}
	}
	conf := filepath.Join(dir, "conf")
	err = writeConf(conf, map[string]string{
		"rest.port": strconv.Itoa(ports[0]), "rest.address": "localhost", "rest.bind-address": "localhost",
		"jobmanager.rpc.address": "localhost", "jobmanager.rpc.port": strconv.Itoa(ports[1]), "taskmanager.host": "localhost",
		"io.tmp.dirs": filepath.Join(dir, "tmp"),
	}, settings)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.jm, err = s.launch(ctx, JobManagerName, "GET_JM_RESOURCE_PARAMS", "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"); err != nil {
		return nil, err
	}
	if err = s.launchTaskManager(ctx); err != nil {
		return nil, err
	}
	err = until(ctx, startWait, "Flink's slots", func(ctx context.Context) (bool, error) {
		if err := s.alive(); err != nil {
			return true, err
		}
		var o struct {
			Slots int `json:"slots-total"`
		}
		err := s.REST.Get(ctx, "/overview", &o)
		return o.Slots > 0, err
	})
	if err == nil {
		err = s.alive()
	}
	if err != nil {
		return nil, fmt.Errorf("%w (logs in %s)", err, filepath.Join(dir, "log"))
	}
	s.jar, err = s.REST.Upload(ctx, h.Jar)
	return s, err
}

func (s *Standalone) launchTaskManager(ctx context.Context) (err error) {
	s.tm, err = s.launch(ctx, TaskManagerName, "GET_TM_RESOURCE_PARAMS", "org.apache.flink.runtime.taskexecutor.TaskManagerRunner")
	return err
}

// alive fails when one of the processes has ended.
func (s *Standalone) alive() error {
	for name, c := range map[string]*exec.Cmd{JobManagerName: s.jm, TaskManagerName: s.tm} {
		if p, err := proc.Read(c.Process.Pid); err != nil || p.State == 'Z' {
			return fmt.Errorf("flink: the %s has ended", name)
		}
	}
	return nil
}

// ReplaceTaskManager kills the TaskManager, as the loss of its container does, removes its local files and starts another one.
func (s *Standalone) ReplaceTaskManager(ctx context.Context) error {
	if err := s.tm.Process.Kill(); err != nil {
		return fmt.Errorf("flink: kill the TaskManager: %w", err)
	}
	_ = s.tm.Wait() // the exit code of a process that was killed says nothing
	local, err := filepath.Glob(filepath.Join(s.LocalDir(), "tm_*"))
	if err != nil {
		return fmt.Errorf("flink: local files: %w", err)
	}
	if err := s.launchTaskManager(ctx); err != nil {
		return err
	}
	for _, d := range local {
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("flink: local files: %w", err)
		}
	}
	return nil
}

// LocalDir is where the TaskManager keeps its state.
func (s *Standalone) LocalDir() string { return filepath.Join(s.dir, "tmp") }

func (s *Standalone) classPath() string {
	path := filepath.Join(s.home.lib(), "*") + ":" + filepath.Join(s.home.Dir, "ext", "*")
	if s.home.Hadoop != "" {
		path += ":" + filepath.Join(s.home.Hadoop, "*")
	}
	return path
}

// launch starts one of the two processes; it ends by Stop.
func (s *Standalone) launch(ctx context.Context, name, params, class string) (*exec.Cmd, error) {
	conf := filepath.Join(s.dir, "conf")
	jvm, dynamic, err := s.home.params(ctx, conf, params)
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(s.dir, "log", name+".out"))
	if err != nil {
		return nil, fmt.Errorf("flink: start the %s: %w", name, err)
	}
	defer out.Close() //nolint:errcheck // the child has its own
	logFile := filepath.Join(s.dir, "log", name+".log")
	if err := os.Remove(logFile); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("flink: start the %s: %w", name, err)
	}
	args := append(jvm, opens...)
	args = append(args, "-Dlog.file="+logFile, "-Dlog4j.configurationFile="+filepath.Join(conf, "log4j.properties"), "-cp", s.classPath(), class, "--configDir", conf)
	// Not bound to ctx: an interrupt must not kill the processes before Stop has their figures.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.home.Java, append(args, dynamic...)...)
	if enter := s.enter[name]; enter != "" {
		shell := append([]string{"-c", enter + `; exec "$0" "$@"`, s.home.Java}, append(args, dynamic...)...)
		cmd = exec.CommandContext(context.WithoutCancel(ctx), "bash", shell...)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("flink: start the %s: %w", name, err)
	}
	return cmd, nil
}

// params asks Flink's memory model for the flags of a process.
func (h *Home) params(ctx context.Context, conf, what string) (jvm, dynamic []string, err error) {
	cp := filepath.Join(h.Dir, "flink", "bin", "bash-java-utils.jar") + ":" + filepath.Join(h.lib(), "*")
	out, err := exec.CommandContext(ctx, h.Java, "-XX:TieredStopAtLevel=1", "-cp", cp, "org.apache.flink.runtime.util.bash.BashJavaUtils", what, "--configDir", conf).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("flink: %s: %w", what, err)
	}
	const mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
	var lines [][]string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, mark); ok {
			lines = append(lines, strings.Fields(rest))
		}
	}
	if len(lines) == 0 {
		return nil, nil, fmt.Errorf("flink: %s: no answer in %q", what, out)
	}
	if len(lines) > 1 {
		dynamic = lines[1]
	}
	return lines[0], dynamic, nil
}

// JobManager and TaskManager are the two processes.
func (s *Standalone) JobManager() int { return s.jm.Process.Pid }

// TaskManager is the other one.
func (s *Standalone) TaskManager() int { return s.tm.Process.Pid }

// Stop ends the two processes.
func (s *Standalone) Stop() error {
	var errs []error
	for _, c := range []*exec.Cmd{s.tm, s.jm} {
		if c == nil {
			continue
		}
		done := make(chan struct{})
		go func() { // ends with the process
			_ = c.Wait() // the exit code of a process that was told to end says nothing
			close(done)
		}()
		if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("flink: stop %d: %w", c.Process.Pid, err))
		}
		select {
		case <-done:
		case <-time.After(stopWait):
			_ = c.Process.Kill() // it may have ended meanwhile
			<-done
		}
	}
	s.jm, s.tm = nil, nil
	return errors.Join(errs...)
}

// Submit plans a class of the benchmark's jar, in the JobManager, and starts it.
func (s *Standalone) Submit(ctx context.Context, class string, parallelism int, args ...string) (id string, err error) {
	return s.REST.RunJar(ctx, s.jar, class, parallelism, args)
}

// Wait waits for a job's end and returns the time between RUNNING and FINISHED by the JobManager's clock.
func (s *Standalone) Wait(ctx context.Context, id string) (time.Duration, error) {
	var j Job
	err := until(ctx, 10*time.Minute, "the end of Flink's job "+id, func(ctx context.Context) (bool, error) {
		var err error
		j, err = s.REST.Job(ctx, id)
		return err == nil && j.Ended(), err
	})
	if err != nil {
		return 0, err
	}
	if j.State != "FINISHED" {
		return 0, fmt.Errorf("flink: job %s ended %s: %s", id, j.State, s.REST.RootCause(ctx, id))
	}
	return time.Duration(j.Timestamps["FINISHED"]-j.Timestamps["RUNNING"]) * time.Millisecond, nil
}

// freePorts asks the system for ports that nobody uses.
func freePorts(n int) ([]int, error) {
	var all []int
	for range n {
		l, err := net.Listen("tcp", "localhost:0") //nolint:noctx // closed at once
		if err != nil {
			return nil, fmt.Errorf("flink: find a port: %w", err)
		}
		defer l.Close() //nolint:errcheck // only held so that the next is another one
		all = append(all, l.Addr().(*net.TCPAddr).Port)
	}
	return all, nil
}

// until polls a condition; its error is the last failure of the condition.
func until(ctx context.Context, limit time.Duration, what string, cond func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := cond(ctx)
		if ok {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("flink: %s not within %v: %w (last: %v)", what, limit, context.Cause(ctx), last) //nolint:errorlint // the last one is only told
		case <-tick.C:
		}
	}
}
