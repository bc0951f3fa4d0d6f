package yarntest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// life is the whole path: register, allocate, start, status, stop, finish.
func life(t *testing.T, s *suite) {
	m := s.master(t)
	if l := yarn.ResourceOf(m.reg.GetMaximumCapability()); l.MemoryMB < 64 {
		t.Errorf("largest container at registration is %s", l)
	}
	if r := s.waitState(t, m.id, yarnpb.YarnApplicationStateProto_RUNNING); !strings.HasSuffix(r.GetOriginalTrackingUrl(), m.id.String()) {
		t.Errorf("tracking URL %q", r.GetOriginalTrackingUrl())
	}
	c := m.acquire(t, 1)[0]
	node, id := yarn.NodeIDOf(c.GetNodeId()), idOf(c)
	if id.Attempt != m.am.Attempt() {
		t.Errorf("container %s of attempt %s", id, m.am.Attempt())
	}
	ident, err := yarn.DecodeContainerIdentifier(c.GetContainerToken().GetIdentifier())
	if err != nil || yarn.ContainerIDOf(ident.GetContainerId()) != id || ident.GetNmHostAddr() != node.String() {
		t.Errorf("container token: %v, %v", ident, err)
	}
	m.start(t, c, "test \"$YARNTEST\" = value && test -n \"$CONTAINER_ID\" && sleep 600")
	m.waitRunning(t, c)
	if failed, err := m.nm.Stop(s.ctx, node, id); err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	m.beatUntil(t, &yarnpb.AllocateRequestProto{Progress: proto.Float32(0.5)}, "completed container", func() bool { return m.completed[id] != nil })
	if st := m.completed[id]; st.GetExitStatus() != yarn.ExitKilledByAppMaster && st.GetExitStatus() != 143 && st.GetExitStatus() != 137 {
		t.Errorf("exit status of a stopped container: %d %s", st.GetExitStatus(), st.GetDiagnostics())
	}
	if err := m.am.Finish(s.ctx, yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, "all good", ""); err != nil {
		t.Fatal(err)
	}
	r := s.waitState(t, m.id, yarnpb.YarnApplicationStateProto_FINISHED)
	if r.GetFinalApplicationStatus() != yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED || !strings.Contains(r.GetDiagnostics(), "all good") {
		t.Errorf("after finish: %s %q", r.GetFinalApplicationStatus(), r.GetDiagnostics())
	}
}

// waitRunning beats until the container's process runs. State C_RUNNING alone does not say so: a NodeManager shows it
// from the start request on.
func (m *master) waitRunning(t *testing.T, c *yarnpb.ContainerProto) {
	t.Helper()
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "running container", func() bool {
		st, failed, err := m.nm.Statuses(m.s.ctx, yarn.NodeIDOf(c.GetNodeId()), idOf(c))
		if err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		if st[0].GetState() == yarnpb.ContainerStateProto_C_COMPLETE {
			t.Fatalf("container ended: %v", st[0])
		}
		return st[0].GetContainerSubState() == yarnpb.ContainerSubStateProto_CSS_RUNNING
	})
}

func exitCodes(t *testing.T, s *suite) {
	m := s.master(t)
	want := map[yarn.ContainerID]int32{}
	for i, c := range m.acquire(t, 2) {
		want[idOf(c)] = []int32{0, 9}[i]
		m.start(t, c, []string{"exit 0", "echo broken >&2; exit 9"}[i])
	}
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "completed containers", func() bool { return len(m.completed) >= 2 })
	for id, code := range want {
		if st := m.completed[id]; st.GetExitStatus() != code {
			t.Errorf("%s: exit status %d, want %d (%s)", id, st.GetExitStatus(), code, st.GetDiagnostics())
		}
	}
}

// asksAreAbsolute is what makes a careless ApplicationMaster flood the cluster (YARN-1902): the same count sent again
// after a grant is a wish for as many more.
func asksAreAbsolute(t *testing.T, s *suite) {
	m := s.master(t)
	ask := asks(yarn.Ask(1, 5, small, 2))
	m.beat(t, ask)
	m.beat(t, ask) // nothing granted in between, or two at most: the count is not added
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "two grants", func() bool { return len(m.granted) >= 2 })
	m.quiet(t)
	first := len(m.granted)
	if first > 4 {
		t.Fatalf("%d grants for two asks", first)
	}
	m.beatUntil(t, ask, "surplus", func() bool { return len(m.granted) >= first+2 })
	m.quiet(t)
	if len(m.granted) != first+2 {
		t.Errorf("%d grants after the same ask again, want %d", len(m.granted), first+2)
	}
	var ids []*yarnpb.ContainerIdProto
	for _, c := range m.granted {
		ids = append(ids, c.GetId())
	}
	m.beatUntil(t, &yarnpb.AllocateRequestProto{Release: ids}, "released containers", func() bool { return len(m.completed) >= len(ids) })
	for id, st := range m.completed {
		if st.GetExitStatus() != yarn.ExitAborted {
			t.Errorf("%s: exit status %d of a released container", id, st.GetExitStatus())
		}
	}
}

// quiet beats until no grant came for a while.
func (m *master) quiet(t *testing.T) {
	t.Helper()
	last, since := len(m.granted), time.Now()
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "end of grants", func() bool {
		if len(m.granted) != last {
			last, since = len(m.granted), time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
}

func asksTakenBack(t *testing.T, s *suite) {
	m := s.master(t)
	// Larger than what is free, so that it stays open.
	l := yarn.ResourceOf(m.reg.GetMaximumCapability())
	big := yarn.Resource{MemoryMB: l.MemoryMB, VCores: 1}
	m.beat(t, asks(yarn.Ask(3, 7, big, 50)))
	m.beat(t, asks(yarn.Ask(3, 7, big, 0)))
	m.quiet(t)
	have := len(m.granted)
	if have >= 50 {
		t.Fatalf("%d grants", have)
	}
	var ids []*yarnpb.ContainerIdProto
	for _, c := range m.granted {
		ids = append(ids, c.GetId())
	}
	if have > 0 {
		m.beat(t, &yarnpb.AllocateRequestProto{Release: ids})
	}
	m.quiet(t)
	if len(m.granted) != have {
		t.Errorf("%d grants after the ask was taken back, want %d", len(m.granted), have)
	}
}

// grantsByRequestID: the size of a grant may differ from what was asked (a scheduler that counts memory only reports
// one vcore), the request id comes back as it was.
func grantsByRequestID(t *testing.T, s *suite) {
	m := s.master(t)
	m.beatUntil(t, asks(
		yarn.Ask(1, 11, yarn.Resource{MemoryMB: 64, VCores: 2}, 1),
		yarn.Ask(2, 12, yarn.Resource{MemoryMB: 100, VCores: 1}, 1),
	), "two grants", func() bool { return len(m.granted) >= 2 })
	byID := map[int64]*yarnpb.ContainerProto{}
	for _, c := range m.granted {
		byID[c.GetAllocationRequestId()] = c
	}
	if byID[11] == nil || byID[12] == nil {
		t.Fatalf("request ids of the grants: %v", byID)
	}
	if byID[11].GetPriority().GetPriority() != 1 || byID[12].GetPriority().GetPriority() != 2 {
		t.Errorf("priorities of the grants: %v", m.granted)
	}
	t.Logf("asked 64 MiB, 2 vcores: granted %s", yarn.ResourceOf(byID[11].GetResource()))
	t.Logf("asked 100 MiB, 1 vcore: granted %s", yarn.ResourceOf(byID[12].GetResource()))
	if got := yarn.ResourceOf(byID[12].GetResource()).MemoryMB; got < 100 {
		t.Errorf("granted %d MiB for 100", got)
	}
}

// lostAnswer: a request repeated under its response id gets the earlier answer and is not run again.
func lostAnswer(t *testing.T, s *suite) {
	m := s.master(t)
	m.beat(t, &yarnpb.AllocateRequestProto{})
	raw, err := ipc.NewClient(mustSchedulers(t, s), yarn.MasterProtocol, ipc.WithMechanisms(ipc.TokenAuth{
		Credential: func() ([]byte, []byte, error) { return m.tok.Identifier, m.tok.Password, nil },
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // end of the test
	call := func(id int32, a ...*yarnpb.ResourceRequestProto) (*yarnpb.AllocateResponseProto, error) {
		resp := &yarnpb.AllocateResponseProto{}
		err := raw.Call(s.ctx, "allocate", &yarnpb.AllocateRequestProto{Ask: a, ResponseId: proto.Int32(id)}, resp)
		return resp, err
	}
	first, err := call(1, yarn.Ask(1, 1, small, 1))
	if err != nil || first.GetResponseId() != 2 {
		t.Fatalf("answer %v, %v", first, err)
	}
	again, err := call(1, yarn.Ask(1, 1, small, 40))
	if err != nil || again.GetResponseId() != 2 {
		t.Fatalf("repeated answer %v, %v", again, err)
	}
	total, next := len(first.GetAllocatedContainers()), int32(2)
	deadline := time.Now().Add(2 * time.Second)
	s.until(t, "the one grant", func() bool {
		r, err := call(next)
		if err != nil {
			t.Fatal(err)
		}
		next = r.GetResponseId()
		total += len(r.GetAllocatedContainers())
		return total > 0 && time.Now().After(deadline)
	})
	if total != 1 {
		t.Errorf("%d grants: the repeated request was run", total)
	}
	if _, err := call(0); !errors.Is(err, yarn.ErrInvalidMasterRequest) {
		t.Errorf("response id of long ago: %v", err)
	}
}

func mustSchedulers(t *testing.T, s *suite) []string {
	t.Helper()
	a, err := s.Conf.Schedulers()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tooLarge(t *testing.T, s *suite) {
	m := s.master(t)
	l := yarn.ResourceOf(m.reg.GetMaximumCapability())
	_, err := m.am.Allocate(s.ctx, asks(yarn.Ask(1, 1, yarn.Resource{MemoryMB: l.MemoryMB + 1, VCores: 1}, 1)))
	if !errors.Is(err, yarn.ErrInvalidResourceRequest) {
		t.Fatalf("ask above the maximum: %v", err)
	}
	m.acquire(t, 1) // the registration is still good, and so is the response id
}

func wrongToken(t *testing.T, s *suite) {
	m := s.unregistered(t)
	bad := m.tok
	bad.Password = append([]byte("x"), bad.Password...)
	a, err := am.New(mustSchedulers(t, s), bad)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // end of the test
	_, err = a.Register(s.ctx, am.Registration{Host: "localhost"})
	if err == nil || ipc.Classify(err) != ipc.Final || s.ctx.Err() != nil {
		t.Errorf("register with a wrong password: %v", err)
	}
	var remote *ipc.RemoteError
	if !errors.As(err, &remote) {
		t.Errorf("not the server's refusal: %v", err)
	}
	plain, err := ipc.NewClient(mustSchedulers(t, s), yarn.MasterProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close() //nolint:errcheck // end of the test
	err = plain.Call(s.ctx, "registerApplicationMaster", &yarnpb.RegisterApplicationMasterRequestProto{}, &yarnpb.RegisterApplicationMasterResponseProto{})
	if !errors.Is(err, ipc.ErrAccessControl) {
		t.Errorf("register without a token: %v", err)
	}
}

func unregisteredAllocate(t *testing.T, s *suite) {
	m := s.unregistered(t)
	if _, err := m.am.Allocate(s.ctx, &yarnpb.AllocateRequestProto{}); !errors.Is(err, am.ErrResync) {
		t.Errorf("allocate before register: %v", err)
	}
	m.register(t)
	m.beat(t, &yarnpb.AllocateRequestProto{})
	_, err := m.am.Register(s.ctx, am.Registration{Host: "localhost"})
	if !errors.Is(err, yarn.ErrInvalidMasterRequest) {
		t.Errorf("second register: %v", err)
	}
}

func startTwice(t *testing.T, s *suite) {
	m := s.master(t)
	c := m.acquire(t, 1)[0]
	m.start(t, c, "sleep 600")
	var ce *nm.ContainerError
	err := m.nm.Start(s.ctx, nm.Launch{Container: c, Context: shell("sleep 600")})
	if !errors.As(err, &ce) || ce.Container != idOf(c) {
		t.Errorf("second start: %v", err)
	}
	other := nm.New()
	defer other.Close() //nolint:errcheck // end of the test
	if err := other.Start(s.ctx, nm.Launch{Container: c}); !errors.Is(err, nm.ErrNoToken) {
		t.Errorf("start without a token: %v", err)
	}
}

func killedWhileRunning(t *testing.T, s *suite) {
	m := s.master(t)
	m.beat(t, &yarnpb.AllocateRequestProto{})
	if err := s.rm.Kill(s.ctx, m.id, "enough"); err != nil {
		t.Fatal(err)
	}
	s.until(t, "shutdown", func() bool {
		_, err := m.am.Allocate(s.ctx, &yarnpb.AllocateRequestProto{})
		if err != nil && !errors.Is(err, am.ErrShutdown) {
			t.Fatalf("allocate after kill: %v", err)
		}
		return err != nil
	})
}

func tokenRoll(t *testing.T, s *suite) {
	if !s.RollsTokens && s.RollTokens == nil {
		t.Skip("this ResourceManager does not roll its key within a minute")
	}
	m := s.master(t)
	old := m.am.Token()
	if s.RollTokens != nil {
		s.RollTokens(t)
	}
	m.beatUntil(t, &yarnpb.AllocateRequestProto{}, "new token", func() bool { return !m.am.Token().Equal(old) })
	m.acquire(t, 1)
	if n := m.am.Token(); n.Kind != token.KindAMRM {
		t.Errorf("new token: %v", n)
	}
}
