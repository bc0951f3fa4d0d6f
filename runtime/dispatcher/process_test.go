package dispatcher_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// coordinator is this test binary in role coordinator.
func coordinator(mode string) {
	switch mode {
	case "build":
		os.Stderr.WriteString("job: build made another graph\n")
		os.Exit(2)
	case "panic":
		panic("init failed")
	case "quit":
		return
	}
	link, err := rpc.DialSocket[*pb.CoordinatorUp, *pb.CoordinatorDown](context.Background(), os.Getenv(rpc.EnvControl))
	if err != nil {
		panic(err)
	}
	_ = link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Hello{Hello: &pb.WorkerHello{Protocol: version.Protocol, Pid: int32(os.Getpid()), JobId: os.Getenv(rpc.EnvJobID)}}})
	for {
		if _, err := link.Recv(); err != nil {
			<-link.Done()
			return
		}
	}
}

func launch(t *testing.T, mode string) (rpc.CoordinatorLink, func() string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := &dispatcher.ProcessLauncher{Dir: t.TempDir(), LogDir: t.TempDir()}
	return l.LaunchCoordinator(ctx, rpc.ProcessConfig{JobID: "0a0b", Args: []string{mode}}, dispatcher.Artifact{Path: os.Args[0]})
}

func TestCoordinatorProcess(t *testing.T) {
	link, stop, err := launch(t, "serve")
	if err != nil {
		t.Fatal(err)
	}
	up, err := link.Recv()
	if err != nil || up.GetHello().GetJobId() != "0a0b" {
		t.Fatalf("%v, %v", up, err)
	}
	link.Close(nil)
	if how := stop(); how != "" && !strings.Contains(how, "signal 15") {
		t.Errorf("ended: %s", how)
	}
	<-link.Done()
}

func TestCoordinatorProcessThatIsKilled(t *testing.T) {
	link, stop, err := launch(t, "serve")
	if err != nil {
		t.Fatal(err)
	}
	up, err := link.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(int(up.GetHello().GetPid()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = link.Recv()
	}
	link.Close(nil)
	if how := stop(); !strings.Contains(how, "killed by signal 9") {
		t.Errorf("ended: %q", how)
	}
}

func TestCoordinatorProcessThatNeverConnects(t *testing.T) {
	for mode, want := range map[string]struct {
		text      string
		permanent bool
	}{"build": {"build made another graph", true}, "panic": {"init failed", false}, "quit": {"stream.Main", false}} {
		_, _, err := launch(t, mode)
		var exit *dispatcher.ExitError
		if !errors.As(err, &exit) || !strings.Contains(err.Error(), want.text) || exit.Permanent() != want.permanent {
			t.Errorf("%s: %v", mode, err)
		}
	}
	l := &dispatcher.ProcessLauncher{Dir: t.TempDir()}
	_, _, err := l.LaunchCoordinator(context.Background(), rpc.ProcessConfig{}, dispatcher.Artifact{Path: "/nosuch/job"})
	if err == nil || !strings.Contains(err.Error(), "/nosuch/job") || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing artifact: %v", err)
	}
}
