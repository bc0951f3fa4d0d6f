package yarntest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// masterEnv tells a process of the test binary that it is an ApplicationMaster.
const masterEnv = "YARNTEST_MASTER"

// RunMaster becomes the suite's own ApplicationMaster when this process was started as one, and does not return then.
// Call it first in TestMain of packages that call Run with Env.ConfDir.
func RunMaster() {
	if os.Getenv(masterEnv) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := runMaster(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "master:", err)
		os.Exit(1) //nolint:gocritic // the end of the process frees all
	}
	os.Exit(0)
}

// runMaster starts a container and dies in its first attempt; in the second it finds the container, stops it, and ends
// with its name as diagnostics.
func runMaster(ctx context.Context) error {
	cfg, err := conf.Load()
	if err != nil {
		return err
	}
	creds, err := token.FromEnvironment()
	if err != nil {
		return err
	}
	self, err := yarn.ParseContainerID(os.Getenv("CONTAINER_ID"))
	if err != nil {
		return err
	}
	m, err := am.FromCredentials(cfg, creds)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // end of the process
	if m.Attempt() != self.Attempt {
		return fmt.Errorf("token of %s in container %s", m.Attempt(), self)
	}
	nodes := nm.New()
	defer nodes.Close() //nolint:errcheck // end of the process
	reg, err := m.Register(ctx, am.Registration{Host: "localhost", RPCPort: -1})
	if err != nil {
		return err
	}
	nodes.PutTokens(reg.GetNmTokensFromPreviousAttempts())
	old := reg.GetContainersFromPreviousAttempts()
	if self.Attempt.Attempt == 1 {
		if len(old) > 0 {
			return fmt.Errorf("first attempt was given %v", old)
		}
		return startAndDie(ctx, m, nodes)
	}
	if len(old) != 1 {
		return fmt.Errorf("containers of the first attempt: %v", old)
	}
	id, node := yarn.ContainerIDOf(old[0].GetId()), yarn.NodeIDOf(old[0].GetNodeId())
	st, failed, err := nodes.Statuses(ctx, node, id)
	if err != nil || len(failed) > 0 {
		return fmt.Errorf("status of %s: %v %w", id, failed, err)
	}
	if _, err := nodes.Stop(ctx, node, id); err != nil {
		return err
	}
	for done := false; !done; {
		a, err := m.Allocate(ctx, &yarnpb.AllocateRequestProto{})
		if err != nil {
			return err
		}
		for _, c := range a.GetCompletedContainerStatuses() {
			done = done || yarn.ContainerIDOf(c.GetContainerId()) == id
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return m.Finish(ctx, yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, fmt.Sprintf("found %s %s", id, st[0].GetState()), "")
}

func startAndDie(ctx context.Context, m *am.Client, nodes *nm.Client) error {
	req := asks(yarn.Ask(1, 1, small, 1))
	for {
		a, err := m.Allocate(ctx, req)
		if err != nil {
			return err
		}
		req = &yarnpb.AllocateRequestProto{}
		nodes.PutTokens(a.GetNmTokens())
		if got := a.GetAllocatedContainers(); len(got) > 0 {
			if err := nodes.Start(ctx, nm.Launch{Container: got[0], Context: shell("sleep 600")}); err != nil {
				return err
			}
			id := yarn.ContainerIDOf(got[0].GetId())
			if err := letNodesReport(ctx, m); err != nil {
				return err
			}
			return fmt.Errorf("dies with %s running", id)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// letNodesReport goes on beating for a few beats of the NodeManagers, which come each second: a container that no node has reported as
// running is not kept when its attempt ends, and nothing tells an ApplicationMaster when that is.
// Source: Hadoop CapacityScheduler.doneApplicationAttempt; RMContainerImpl.getContainerState says RUNNING from the start.
func letNodesReport(ctx context.Context, m *am.Client) error {
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		if _, err := m.Allocate(ctx, &yarnpb.AllocateRequestProto{}); err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context) error {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keepContainers: a second attempt gets the containers of the first.
func keepContainers(t *testing.T, s *suite) {
	if s.ConfDir == "" {
		t.Skip("the nodes of this cluster do not share this machine's files")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	spec := yarn.LaunchContext([]string{exe + " 1><LOG_DIR>/out 2><LOG_DIR>/err"},
		map[string]string{masterEnv: "1", "HADOOP_CONF_DIR": s.ConfDir}, nil, nil)
	sub := s.submission(id, t.Name(), spec)
	sub.MaxAppAttempts = proto.Int32(2)
	sub.KeepContainersAcrossApplicationAttempts = proto.Bool(true)
	if err := s.rm.Submit(s.ctx, sub); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.newClient(t).Kill(ctx, id, "end of the test"); err != nil {
			t.Error(err)
		}
	})
	r := s.waitState(t, id, yarnpb.YarnApplicationStateProto_FINISHED, yarnpb.YarnApplicationStateProto_FAILED)
	if r.GetFinalApplicationStatus() != yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED || !strings.Contains(r.GetDiagnostics(), "found container_") {
		t.Errorf("%s: %s", r.GetFinalApplicationStatus(), r.GetDiagnostics())
	}
	list, err := s.rm.Attempts(s.ctx, id)
	if err != nil || len(list) != 2 {
		t.Errorf("attempts: %v, %v", list, err)
	}
}
