package taskmanager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

// The test binary is also the job's artifact: in role worker it behaves as its first argument says.
func TestMain(m *testing.M) {
	switch os.Getenv(rpc.EnvRole) {
	case rpc.RoleWorker:
		helper(os.Args[1])
		return
	case "parent":
		parent()
		return
	}
	goleak.VerifyTestMain(m)
}

func helper(mode string) {
	fmt.Println("standard output of", mode)
	switch mode {
	case "exit3":
		for i := range 30 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		os.Exit(3)
	case "panic":
		panic("user code is broken")
	case "silent":
		<-time.After(time.Minute)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "family":
		c := exec.Command("sleep", "300")
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "child %d\n", c.Process.Pid)
	case "emigrant":
		c := exec.Command("sleep", "300")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "child %d\n", c.Process.Pid)
	case "deep":
		deep(200)
	}
	var cfg rpc.ProcessConfig
	b, err := os.ReadFile(os.Getenv(rpc.EnvConfig))
	if err == nil {
		err = json.Unmarshal(b, &cfg)
	}
	if err != nil {
		panic(err)
	}
	link, err := rpc.DialSocket[*pb.WorkerUp, *pb.WorkerDown](context.Background(), os.Getenv(rpc.EnvControl))
	if err != nil {
		panic(err)
	}
	for _, d := range cfg.Dirs {
		if err := os.WriteFile(d+"/state", []byte("x"), 0o600); err != nil {
			panic(err)
		}
	}
	for _, d := range cfg.BackupDirs {
		if err := os.MkdirAll(d+"/chk-1", 0o700); err != nil {
			panic(err)
		}
		if err := os.WriteFile(fmt.Sprintf("%s/chk-1/%d", d, os.Getpid()), []byte("x"), 0o600); err != nil {
			panic(err)
		}
	}
	_ = link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: &pb.WorkerHello{Protocol: version.Protocol, Sdk: cfg.JobName, Pid: int32(os.Getpid()), Fingerprint: cfg.Fingerprint,
		DataAddress: strconv.Itoa(len(cfg.Dirs)), JobId: os.Getenv(rpc.EnvJobID)}}})
	switch mode {
	case "stopped":
		_ = link.SendWait(context.Background(), &pb.WorkerUp{})
		<-time.After(50 * time.Millisecond) // for the message to leave
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "beats":
		go rpc.Beat(context.Background(), 10*time.Millisecond, func() { _ = link.Send(&pb.WorkerUp{}) })
	}
	for {
		m, err := link.Recv()
		if err != nil {
			if mode == "stubborn" {
				<-time.After(time.Minute) // hangs instead of ending
			}
			return
		}
		if m.GetCancel() != nil {
			_ = link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{ExecutionId: fmt.Sprintf("all=%t", m.GetCancel().GetAll()), State: pb.TaskState_CANCELED}}})
		}
		if f := m.GetFinish(); f != nil {
			_ = link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{ExecutionId: f.GetExecutionIds()[0], State: pb.TaskState_FINISHED}}})
			link.Close(nil)
			<-link.Done()
			return
		}
	}
}

func deep(n int) {
	if n == 0 {
		panic("user code is too deep")
	}
	deep(n - 1)
}

// parent forks a worker and waits to be killed.
func parent() {
	p, err := taskmanager.Fork(taskmanager.ForkSpec{Path: os.Args[0], Args: []string{"silent"}, Role: rpc.RoleWorker, Dir: os.TempDir()})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.PID())
	p.Wait()
}
