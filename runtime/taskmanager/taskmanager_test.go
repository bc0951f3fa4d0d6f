package taskmanager_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/rpc/remote"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

// rig is a TaskManager with a scripted JobMaster.
type rig struct {
	t       *testing.T
	links   chan rpc.TaskManagerLink
	link    rpc.TaskManagerLink
	reg     *pb.RegisterTaskManager
	dir     string
	sum     string
	config  map[string]string // of the job
	fetches atomic.Int32
	stop    context.CancelFunc
	done    chan error
	ended   bool
}

var self = sync.OnceValues(func() ([]byte, string) {
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		panic(err)
	}
	s := sha256.Sum256(b)
	return b, hex.EncodeToString(s[:])
})

func start(t *testing.T, change ...func(*taskmanager.Options)) *rig {
	t.Helper()
	r := &rig{t: t, links: make(chan rpc.TaskManagerLink, 4), dir: t.TempDir(), done: make(chan error, 1)}
	var content []byte
	content, r.sum = self()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := remote.NewServer(remote.Options{Token: "secret"}, remote.Handlers{TaskManager: func(l rpc.TaskManagerLink, _ string) { r.links <- l },
		Blob: func(context.Context, string) (io.ReadCloser, error) {
			r.fetches.Add(1)
			return io.NopCloser(strings.NewReader(string(content))), nil
		}})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"logs", "d1", "d2"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	opts := taskmanager.Options{ID: "container_1", Host: "nm1", Slots: 2, MemoryBytes: 1 << 30, Cores: 2, Connect: connect,
		Dirs: []string{filepath.Join(r.dir, "d1"), "/proc/nosuch", filepath.Join(r.dir, "d2")}, LogDir: filepath.Join(r.dir, "logs"),
		Leader: func(context.Context) (taskmanager.Leader, error) {
			return taskmanager.Leader{Address: ln.Addr().String()}, nil
		},
		LookupInterval: 5 * time.Millisecond, Logger: zerolog.New(zerolog.NewTestWriter(t))}
	for _, f := range change {
		f(&opts)
	}
	tm, err := taskmanager.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	go func() { r.done <- tm.Run(ctx) }()
	t.Cleanup(func() {
		r.stop()
		if !r.ended {
			<-r.done
		}
		if r.link != nil {
			r.link.Close(nil)
		}
		s.Close()
		wg.Wait()
	})
	return r
}

func connect(ctx context.Context, l taskmanager.Leader) (taskmanager.Connection, error) {
	c, err := remote.Dial(l.Address, remote.Options{Token: "secret"})
	if err != nil {
		return taskmanager.Connection{}, err
	}
	link, err := c.ConnectTaskManager(ctx)
	if err != nil {
		return taskmanager.Connection{}, errors.Join(err, c.Close())
	}
	return taskmanager.Connection{Link: link, FetchBlob: c.FetchBlob, Close: c.Close}, nil
}

func (r *rig) accept(epoch int64) {
	r.t.Helper()
	select {
	case r.link = <-r.links:
	case <-time.After(time.Minute):
		r.t.Fatal("no TaskManager came")
	}
	up, err := r.link.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	r.reg = up.GetRegister()
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Registered{Registered: &pb.Registered{Epoch: epoch, HeartbeatIntervalMs: 20, HeartbeatTimeoutMs: 60_000}}})
}

func (r *rig) send(m *pb.TaskManagerDown) {
	r.t.Helper()
	if err := r.link.Send(m); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) startWorker(mode string) {
	r.t.Helper()
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StartWorker{StartWorker: &pb.StartWorker{JobId: "0a0b0c0d", JobName: "totals", Args: []string{mode}, Fingerprint: "f00d", Config: r.config,
		Artifact: &pb.Artifact{Uri: "blob:" + r.sum, Sha256: r.sum, Name: "job"}}}})
}

// next is the next message that is no heartbeat.
func (r *rig) next() *pb.TaskManagerUp {
	r.t.Helper()
	timer := time.AfterFunc(time.Minute, func() { r.link.Close(errors.New("test timed out")) })
	defer timer.Stop()
	for {
		up, err := r.link.Recv()
		if err != nil {
			r.t.Fatal(err)
		}
		if up.GetHeartbeat() == nil {
			return up
		}
	}
}

func (r *rig) hello() *pb.WorkerHello {
	r.t.Helper()
	up := r.next()
	h := up.GetWorker().GetUp().GetHello()
	if h == nil || up.GetWorker().GetJobId() != "0a0b0c0d" {
		r.t.Fatalf("got %v, want a hello", up)
	}
	return h
}

func (r *rig) exited() *pb.WorkerExited {
	r.t.Helper()
	up := r.next()
	if up.GetWorkerExited() == nil {
		r.t.Fatalf("got %v, want WorkerExited", up)
	}
	return up.GetWorkerExited()
}

// gone waits until a process is gone (or a zombie of somebody else).
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still lives", pid)
		}
		jobtest.Pause()
	}
}

func TestRegistrationAndWorker(t *testing.T) {
	r := start(t)
	r.accept(1)
	if r.reg.GetId() != "container_1" || r.reg.GetSlots() != 2 || r.reg.GetLastEpoch() != 0 || r.reg.GetHost() != "nm1" || len(r.reg.GetJobs()) != 0 || r.reg.GetPid() != int32(os.Getpid()) {
		t.Fatalf("registered as %v", r.reg)
	}
	r.startWorker("serve")
	h := r.hello()
	if h.GetFingerprint() != "f00d" || h.GetSdk() != "totals" || h.GetDataAddress() != "2" {
		t.Fatalf("hello %v: want the configuration to have reached the worker, and both local folders", h)
	}
	var hb *pb.Heartbeat
	for hb == nil || len(hb.GetWorkers()) == 0 {
		up, err := r.link.Recv()
		if err != nil {
			t.Fatal(err)
		}
		hb = up.GetHeartbeat()
	}
	if w := hb.GetWorkers()[0]; w.GetPid() != h.GetPid() || w.GetRssBytes() < 1<<20 || hb.GetRssBytes() < 1<<20 {
		t.Fatalf("heartbeat %v", hb)
	}
	// A second StartWorker repeats the hello.
	r.startWorker("serve")
	if again := r.hello(); again.GetPid() != h.GetPid() {
		t.Fatalf("hello %v", again)
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	r.ended = true
	gone(t, int(h.GetPid()))
	for _, d := range []string{"d1", "d2"} {
		if left, err := os.ReadDir(filepath.Join(r.dir, d)); err != nil || len(left) != 0 {
			t.Errorf("%s: %v left, %v", d, left, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "logs", "taskmanager.out")); err != nil || !strings.Contains(string(b), "standard output of serve") {
		t.Errorf("taskmanager.out: %q, %v", b, err)
	}
}

func TestKilledWorker(t *testing.T) {
	r := start(t)
	r.accept(1)
	r.startWorker("serve")
	h := r.hello()
	if err := syscall.Kill(int(h.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := r.exited()
	if e.GetExitCode() != -9 || e.GetPid() != h.GetPid() || !strings.Contains(e.GetReason(), "killed by signal 9") {
		t.Fatalf("exit %v", e)
	}
	// Another one can be started; the artifact is not fetched again.
	r.startWorker("serve")
	if h2 := r.hello(); h2.GetPid() == h.GetPid() || r.fetches.Load() != 1 {
		t.Fatalf("second worker %v, %d fetches", h2, r.fetches.Load())
	}
}

// A worker that is stopped keeps its connection, and would hold its job up.
func TestSilentWorkerIsKilled(t *testing.T) {
	r := start(t)
	r.config = map[string]string{"heartbeat.interval": "20 ms", "heartbeat.timeout": "500 ms"}
	r.accept(1)
	r.startWorker("stopped")
	h := r.hello()
	e := r.exited()
	if e.GetPid() != h.GetPid() || e.GetExitCode() != -9 || !strings.Contains(e.GetReason(), "no word from it for 500ms (heartbeat.timeout)") {
		t.Fatalf("exit %v", e)
	}
	gone(t, int(h.GetPid()))
	r.config["heartbeat.timeout"] = "5 s"
	r.startWorker("beats") // which nobody but the TaskManager hears of
	again := r.hello()
	r.startWorker("beats")
	if third := r.hello(); third.GetPid() != again.GetPid() {
		t.Errorf("hello %v, want that of %d again", third, again.GetPid())
	}
}

func TestExitCodeAndLastLines(t *testing.T) {
	r := start(t)
	r.accept(1)
	r.startWorker("exit3")
	e := r.exited()
	if e.GetExitCode() != 3 || !strings.Contains(e.GetReason(), "exit code 3") || !strings.HasSuffix(e.GetReason(), "line 28\nline 29") ||
		strings.Contains(e.GetReason(), "line 9\n") || !strings.Contains(e.GetReason(), "line 10\n") {
		t.Fatalf("exit %v", e)
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "logs", "worker-0a0b0c0d.log")); err != nil || !strings.Contains(string(b), "line 0\n") {
		t.Errorf("log: %v", err)
	}
	r.startWorker("panic")
	if e := r.exited(); e.GetExitCode() != 2 || !strings.Contains(e.GetReason(), "user code is broken") {
		t.Fatalf("exit %v", e)
	}
}

func TestMessagesBeforeTheEndPrecedeIt(t *testing.T) {
	r := start(t)
	r.accept(1)
	r.startWorker("serve")
	r.hello()
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: "0a0b0c0d",
		Down: &pb.WorkerDown{Msg: &pb.WorkerDown_Finish{Finish: &pb.FinishTasks{ExecutionIds: []string{"x"}}}}}}})
	if s := r.next().GetWorker().GetUp().GetTaskState(); s.GetExecutionId() != "x" || s.GetState() != pb.TaskState_FINISHED {
		t.Fatalf("state %v", s)
	}
	if e := r.exited(); e.GetExitCode() != 0 {
		t.Fatalf("exit %v", e)
	}
}

func TestStopWorker(t *testing.T) {
	for _, mode := range []string{"serve", "stubborn", "silent"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t)
			r.accept(1)
			r.startWorker(mode)
			if mode != "silent" {
				r.hello()
			} else {
				awaitPID(t, r)
			}
			r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StopWorker{StopWorker: &pb.StopWorker{JobId: "0a0b0c0d", GraceMs: 50}}})
			// Asked for again while it ends: starts afterwards.
			r.startWorker("serve")
			e := r.exited()
			if mode == "stubborn" && (e.GetExitCode() != -9 || !strings.Contains(e.GetReason(), "did not end in time")) {
				t.Fatalf("exit %v", e)
			}
			r.hello()
		})
	}
}

func awaitPID(t *testing.T, r *rig) {
	t.Helper()
	for {
		up, err := r.link.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(up.GetHeartbeat().GetWorkers()) > 0 {
			return
		}
	}
}

// The line that names a crash is kept, however long the stack below it.
func TestCrashIsNamed(t *testing.T) {
	r := start(t)
	r.accept(1)
	r.startWorker("deep")
	if e := r.exited(); e.GetExitCode() != 2 || rpc.Summary(e.GetReason()) != "panic: user code is too deep" || len(e.GetReason()) > 8<<10 {
		t.Fatalf("exit %v", e)
	}
}

func TestGrandchildrenAreKilled(t *testing.T) {
	for _, mode := range []string{"family", "emigrant"} {
		t.Run(mode, func(t *testing.T) { grandchildren(t, mode) })
	}
}

func grandchildren(t *testing.T, mode string) {
	r := start(t)
	r.accept(1)
	r.startWorker(mode)
	h := r.hello()
	if err := syscall.Kill(int(h.GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e := r.exited()
	_, after, _ := strings.Cut(e.GetReason(), "child ")
	child, err := strconv.Atoi(strings.TrimSpace(after))
	if err != nil {
		t.Fatalf("exit %v: %v", e, err)
	}
	gone(t, child)
}

func TestWorkersDieWithTheirTaskManager(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rpc.EnvRole+"=parent", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	gone(t, pid)
}

func TestNewJobMasterTakesTheWorkersOver(t *testing.T) {
	r := start(t)
	r.accept(3)
	r.startWorker("serve")
	h := r.hello()
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: "0a0b0c0d", Down: &pb.WorkerDown{Msg: &pb.WorkerDown_Deploy{Deploy: &pb.Deploy{
		Tasks: []*pb.TaskDeployment{{ExecutionId: "a", Slot: 1}, {ExecutionId: "b", Slot: 1}}}}}}}})
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: "0a0b0c0d", Down: &pb.WorkerDown{Msg: &pb.WorkerDown_Cancel{Cancel: &pb.CancelTasks{}}}}}})
	if s := r.next().GetWorker().GetUp().GetTaskState(); s.GetExecutionId() != "all=false" { // it has the tasks
		t.Fatalf("state %v", s)
	}
	r.link.Close(errors.New("application master died"))
	r.accept(2) // a stale one: not served
	if _, err := r.link.Recv(); err == nil {
		t.Fatal("a JobMaster with a lower epoch was served")
	}
	r.accept(4)
	if r.reg.GetLastEpoch() != 3 || len(r.reg.GetJobs()) != 1 || r.reg.GetJobs()[0] != "0a0b0c0d" {
		t.Fatalf("registered as %v", r.reg)
	}
	if held := r.reg.GetHeld(); len(held) != 1 || held[0].GetJobId() != "0a0b0c0d" || !slices.Equal(held[0].GetSlots(), []int32{1}) {
		t.Fatalf("holds %v", held)
	}
	// The tasks of the earlier epoch go on until the new JobMaster has decided about them.
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: "0a0b0c0d", Down: &pb.WorkerDown{Msg: &pb.WorkerDown_Cancel{Cancel: &pb.CancelTasks{All: true}}}}}})
	if s := r.next().GetWorker().GetUp().GetTaskState(); s.GetExecutionId() != "all=true" {
		t.Fatalf("state %v", s)
	}
	r.startWorker("serve")
	if again := r.hello(); again.GetPid() != h.GetPid() {
		t.Fatalf("another worker was started: %v", again)
	}
}

func TestRefusals(t *testing.T) {
	r := start(t)
	r.link = <-r.links
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Refused{Refused: &pb.Refused{Reason: "come back later"}}})
	r.link.Close(nil)
	r.link = <-r.links
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Refused{Refused: &pb.Refused{Reason: "wrong version", Final: true}}})
	if err := <-r.done; !errors.Is(err, taskmanager.ErrRefused) || !strings.Contains(err.Error(), "wrong version") {
		t.Fatalf("ended with %v", err)
	}
	r.ended = true
}

func TestShutdown(t *testing.T) {
	r := start(t)
	r.accept(1)
	r.startWorker("serve")
	h := r.hello()
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Shutdown{Shutdown: &pb.Shutdown{Reason: "idle"}}})
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	r.ended = true
	gone(t, int(h.GetPid()))
}

func TestGivesUpWithoutJobMaster(t *testing.T) {
	r := start(t, func(o *taskmanager.Options) {
		o.GiveUp = 30 * time.Millisecond
		o.Leader = func(context.Context) (taskmanager.Leader, error) {
			return taskmanager.Leader{}, errors.New("no leader file")
		}
	})
	if err := <-r.done; !errors.Is(err, taskmanager.ErrNoLeader) || !strings.Contains(err.Error(), "no leader file") {
		t.Fatalf("ended with %v", err)
	}
	r.ended = true
}

func TestSilentJobMasterIsLeft(t *testing.T) {
	r := start(t)
	r.link = <-r.links
	if _, err := r.link.Recv(); err != nil {
		t.Fatal(err)
	}
	r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Registered{Registered: &pb.Registered{Epoch: 1, HeartbeatIntervalMs: 20, HeartbeatTimeoutMs: 60}}})
	old := r.link
	r.accept(2) // comes again by itself
	old.Close(nil)
}

func TestBadArtifacts(t *testing.T) {
	text := []byte("#!/nosuch/interpreter\n")
	s := sha256.Sum256(text)
	r := start(t, func(o *taskmanager.Options) {
		o.OpenURI = func(_ context.Context, uri string) (io.ReadCloser, error) {
			if uri == "hdfs://nn/missing" {
				return nil, os.ErrNotExist
			}
			return io.NopCloser(strings.NewReader(string(text))), nil
		}
	})
	r.accept(1)
	for _, c := range []struct{ uri, sum, want string }{
		{"hdfs://nn/job", hex.EncodeToString(s[:]), "no such file"},
		{"hdfs://nn/job", strings.Repeat("0", 64), "changed after the submission"},
		{"hdfs://nn/missing", strings.Repeat("1", 64), "hdfs://nn/missing"},
		{"hdfs://nn/job", "../../x", "no SHA-256"},
	} {
		r.send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StartWorker{StartWorker: &pb.StartWorker{JobId: "0a0b0c0d", Artifact: &pb.Artifact{Uri: c.uri, Sha256: c.sum}}}})
		if e := r.exited(); e.GetExitCode() == 0 || !strings.Contains(e.GetReason(), c.want) {
			t.Errorf("%+v: exit %v", c, e)
		}
	}
}

func TestNoUsableFolder(t *testing.T) {
	_, err := taskmanager.New(taskmanager.Options{ID: "x", Slots: 1, Dirs: []string{"/proc/nosuch"}, Connect: connect, Leader: func(context.Context) (taskmanager.Leader, error) { return taskmanager.Leader{}, nil }})
	if err == nil || !strings.Contains(err.Error(), "io.tmp.dirs") {
		t.Errorf("error %v", err)
	}
}
