package yarntest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// rmRestart: registration and asks are lost, containers are not.
func rmRestart(t *testing.T, s *suite) {
	if s.RestartResourceManager == nil {
		t.Skip("no way to restart the ResourceManager")
	}
	m := s.master(t)
	c := m.acquire(t, 1)[0]
	m.start(t, c, "sleep 600")
	m.waitRunning(t, c)
	s.RestartResourceManager(t)
	resync := false
	s.until(t, "registration after the restart", func() bool {
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
		defer cancel()
		a, err := m.am.Allocate(ctx, &yarnpb.AllocateRequestProto{})
		switch {
		case errors.Is(err, am.ErrResync):
			resync = true
			m.register(t)
			return false
		case err != nil:
			t.Fatal(err)
		}
		m.apply(a)
		return resync
	})
	node := yarn.NodeIDOf(c.GetNodeId())
	st, failed, err := m.nm.Statuses(s.ctx, node, idOf(c))
	if err != nil || len(failed) > 0 || st[0].GetState() != yarnpb.ContainerStateProto_C_RUNNING {
		t.Fatalf("container after the restart: %v %v %v", st, failed, err)
	}
	fresh := m.acquire(t, 1)[0]
	if idOf(fresh).Epoch() <= idOf(c).Epoch() {
		t.Errorf("epoch of %s after %s", idOf(fresh), idOf(c))
	}
	if back, err := yarn.ParseContainerID(idOf(fresh).String()); err != nil || back != idOf(fresh) {
		t.Errorf("parse %s: %v %v", idOf(fresh), back, err)
	}
	m.start(t, fresh, "exit 0")
	if err := m.am.Finish(s.ctx, yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, "", ""); err != nil {
		t.Fatal(err)
	}
}

// startAndMeet starts a container that sleeps and waits until its process runs, by a connection from it. States do not
// say so: a NodeManager that is killed between the state and the process reports the container as lost.
func (m *master) startAndMeet(t *testing.T, c *yarnpb.ContainerProto) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // end of the meeting
	_, port, _ := net.SplitHostPort(l.Addr().String())
	m.start(t, c, "exec 3<>/dev/tcp/127.0.0.1/"+port+"; exec 3>&-; sleep 600")
	met := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err == nil {
			err = nc.Close()
		}
		met <- err
	}()
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "connection from the container", func() bool {
		select {
		case err := <-met:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
}

// nmRestart: containers live on, and the client finds the NodeManager again with the token it has.
func nmRestart(t *testing.T, s *suite) {
	if s.RestartNodeManagers == nil || s.ConfDir == "" {
		t.Skip("no way to restart the NodeManagers, or they are on other machines")
	}
	m := s.master(t)
	list := m.acquire(t, 2)
	node, id := yarn.NodeIDOf(list[0].GetNodeId()), idOf(list[0])
	m.startAndMeet(t, list[0])
	beats, end := context.WithCancel(s.ctx)
	defer end()
	var answers []am.Answer
	done := make(chan error, 1)
	go func() { // the ResourceManager hears from us meanwhile
		for beats.Err() == nil {
			a, err := m.am.Allocate(s.ctx, &yarnpb.AllocateRequestProto{})
			if err != nil {
				done <- err
				return
			}
			answers = append(answers, a)
			_ = pause(beats)
		}
		done <- nil
	}()
	s.RestartNodeManagers(t)
	st, failed, err := m.nm.Statuses(s.ctx, node, id)
	if err != nil || len(failed) > 0 || st[0].GetState() != yarnpb.ContainerStateProto_C_RUNNING {
		t.Fatalf("container after the restart: %v %v %v", st, failed, err)
	}
	s.until(t, "start on the restarted node", func() bool {
		err := m.nm.Start(s.ctx, nm.Launch{Container: list[1], Context: shell("exit 0")})
		if err != nil && !errors.Is(err, yarn.ErrInvalidContainer) { // so it says until it has registered
			t.Fatal(err)
		}
		return err == nil
	})
	if failed, err := m.nm.Stop(s.ctx, node, id); err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		m.apply(a)
	}
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "completed containers", func() bool { return len(m.completed) == 2 })
}
