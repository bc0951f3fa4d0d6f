package yarnfake_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

var size = yarn.Resource{MemoryMB: 64, VCores: 1}

// rig is a fake with one registered master in this process.
type rig struct {
	t       *testing.T
	fake    *yarnfake.Cluster
	rm      *client.Client
	id      yarn.ApplicationID
	am      *am.Client
	nm      *nm.Client
	granted []*yarnpb.ContainerProto
	done    []*yarnpb.ContainerStatusProto
}

func fake(t *testing.T, opts ...yarnfake.Option) *yarnfake.Cluster {
	t.Helper()
	f, err := yarnfake.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func newRig(t *testing.T, opts ...yarnfake.Option) *rig {
	t.Helper()
	r := &rig{t: t, fake: fake(t, opts...)}
	var err error
	if r.rm, err = client.New(r.fake.Conf()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.rm.Close() })
	if r.id, _, err = r.rm.NewApplication(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err = r.rm.Submit(t.Context(), &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: r.id.Proto(), Queue: proto.String("default"), UnmanagedAm: proto.Bool(true), AmContainerSpec: yarn.LaunchContext(nil, nil, nil, nil),
	}); err != nil {
		t.Fatal(err)
	}
	rep, err := r.rm.Report(t.Context(), r.id)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := r.fake.Conf().Schedulers()
	if err != nil {
		t.Fatal(err)
	}
	retry := ipc.Retry{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	if r.am, err = am.New(addrs, token.FromProto(rep.GetAmRmToken()), am.WithRetry(retry)); err != nil {
		t.Fatal(err)
	}
	r.nm = nm.New(nm.WithRetry(retry))
	t.Cleanup(func() { _ = r.am.Close(); _ = r.nm.Close() })
	if _, err = r.am.Register(t.Context(), am.Registration{Host: "h", RPCPort: -1}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) beat(req *yarnpb.AllocateRequestProto) am.Answer {
	r.t.Helper()
	a, err := r.am.Allocate(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nm.PutTokens(a.GetNmTokens())
	r.granted = append(r.granted, a.GetAllocatedContainers()...)
	r.done = append(r.done, a.GetCompletedContainerStatuses()...)
	return a
}

func (r *rig) ask(n int32) *yarnpb.AllocateRequestProto {
	return &yarnpb.AllocateRequestProto{Ask: []*yarnpb.ResourceRequestProto{yarn.Ask(1, 1, size, n)}}
}

func idOf(c *yarnpb.ContainerProto) yarn.ContainerID { return yarn.ContainerIDOf(c.GetId()) }

// FLINK-12342, YARN-1902: an ApplicationMaster that sends its first ask again with every beat is flooded; one that sends
// what is still missing in the very beat that brings a grant gets exactly what it wants.
func TestRepeatedAsksAreFlooded(t *testing.T) {
	const want = 50
	careless := newRig(t, yarnfake.WithNodes(2, yarn.Resource{MemoryMB: 64 * 1000, VCores: 1000}))
	careless.fake.SetGrantsPerBeat(5)
	for len(careless.granted) < want {
		careless.beat(careless.ask(want))
	}
	for range 30 {
		careless.beat(&yarnpb.AllocateRequestProto{})
	}
	if got := len(careless.granted); got < 2*want-5 {
		t.Errorf("careless: %d grants, YARN gives nearly twice %d", got, want)
	}

	careful := newRig(t)
	careful.fake.SetGrantsPerBeat(5)
	careful.beat(careful.ask(want))
	for range 30 {
		careful.beat(careful.ask(int32(max(want-len(careful.granted), 0))))
	}
	// The beat that brings grants was sent with the count before them, so the count must be lowered at once, with the
	// next beat: what YARN granted in between is the surplus to return.
	if got := len(careful.granted); got < want || got > want+5 {
		t.Errorf("careful: %d grants for %d", got, want)
	}

	silent := newRig(t)
	silent.fake.SetGrantsPerBeat(5)
	silent.beat(silent.ask(want))
	for range 30 {
		silent.beat(&yarnpb.AllocateRequestProto{})
	}
	if got := len(silent.granted); got != want {
		t.Errorf("asked once: %d grants for %d", got, want)
	}
}

// FLINK-10848: vcores come back as 1 from a calculator that counts memory only; the request id identifies the grant.
func TestVcoresAreEchoedAsOne(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []yarnfake.Option
		want yarn.Resource
	}{
		"memory only": {nil, yarn.Resource{MemoryMB: 128, VCores: 1}},
		"dominant":    {[]yarnfake.Option{yarnfake.WithDominantCalculator()}, yarn.Resource{MemoryMB: 128, VCores: 2}},
	} {
		r := newRig(t, tc.opts...)
		r.beat(&yarnpb.AllocateRequestProto{Ask: []*yarnpb.ResourceRequestProto{yarn.Ask(4, 77, yarn.Resource{MemoryMB: 100, VCores: 2}, 1)}})
		r.beat(&yarnpb.AllocateRequestProto{})
		if len(r.granted) != 1 || yarn.ResourceOf(r.granted[0].GetResource()) != tc.want || r.granted[0].GetAllocationRequestId() != 77 {
			t.Errorf("%s: %v", name, r.granted)
		}
		if s := r.fake.Stats(r.id); s.Open != 0 {
			t.Errorf("%s: %d asks stay open", name, s.Open)
		}
	}
}

// The answer to an allocate is lost: the grants in it are not, and the asks are not counted twice.
func TestLostAllocateAnswer(t *testing.T) {
	r := newRig(t)
	r.beat(r.ask(3))
	r.fake.DropAnswers("allocate", 2)
	r.beat(&yarnpb.AllocateRequestProto{}) // repeated inside until it is answered
	if len(r.granted) != 3 {
		t.Errorf("%d grants", len(r.granted))
	}
	if s := r.fake.Stats(r.id); s.Granted != 3 || s.Beats != 2 {
		t.Errorf("%+v", s)
	}
}

// A ResourceManager that fails on a heartbeat by a mistake of its own, as on the attempt of an application that is just
// being killed, does not end the master: the request is sent again. A decision is not asked for twice.
func TestFailedHeartbeatIsSentAgain(t *testing.T) {
	r := newRig(t)
	npe := &ipc.RemoteError{Class: "java.lang.NullPointerException", Message: "Cannot invoke pullUpdateContainerErrors()"}
	r.fake.Refuse("allocate", npe)
	r.beat(r.ask(3))
	r.beat(&yarnpb.AllocateRequestProto{})
	if s := r.fake.Stats(r.id); len(r.granted) != 3 || s.Granted != 3 {
		t.Errorf("%d grants, %+v", len(r.granted), s)
	}
	r.fake.Refuse("allocate", npe, &ipc.RemoteError{Class: string(yarn.ErrAttemptNotFound)})
	if _, err := r.am.Allocate(t.Context(), r.ask(1)); !errors.Is(err, am.ErrShutdown) {
		t.Errorf("after the attempt was taken away: %v", err)
	}
}

// The caller gives up while the answer is lost: the next Allocate gives that answer first and says so.
func TestDeferredAnswer(t *testing.T) {
	r := newRig(t)
	r.fake.DropAnswers("allocate", 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.am.Allocate(ctx, r.ask(2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	r.fake.DropAnswers("allocate", 0)
	a := r.beat(r.ask(40))
	if !a.Deferred {
		t.Error("answer is not marked")
	}
	if a = r.beat(&yarnpb.AllocateRequestProto{}); a.Deferred || len(r.granted) != 2 {
		t.Errorf("deferred %v, %d grants: the second request was sent", a.Deferred, len(r.granted))
	}
}

func TestLostStartAnswerCountsAsStarted(t *testing.T) {
	r := newRig(t)
	r.beat(r.ask(1))
	r.beat(&yarnpb.AllocateRequestProto{})
	r.fake.DropAnswers("startContainers", 1)
	l := nm.Launch{Container: r.granted[0], Context: yarn.LaunchContext([]string{"x"}, nil, nil, nil)}
	if err := r.nm.Start(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if s := r.fake.Stats(r.id); s.Started != 1 {
		t.Errorf("%+v", s)
	}
}

func TestRefusedLaunch(t *testing.T) {
	r := newRig(t)
	r.beat(r.ask(2))
	r.beat(&yarnpb.AllocateRequestProto{})
	bad := idOf(r.granted[0])
	r.fake.SetLaunchCheck(func(l yarnfake.Launch) error {
		if l.Container == bad {
			return &ipc.RemoteError{Class: string(yarn.ErrYarn), Message: "disk full"}
		}
		return nil
	})
	var ls []nm.Launch
	node := yarn.NodeIDOf(r.granted[0].GetNodeId())
	for _, c := range r.granted {
		if yarn.NodeIDOf(c.GetNodeId()) == node {
			ls = append(ls, nm.Launch{Container: c, Context: yarn.LaunchContext(nil, nil, nil, nil)})
		}
	}
	failed, err := r.nm.StartAll(t.Context(), node, ls)
	if err != nil || len(failed) != 1 || failed[bad] == nil || !strings.Contains(failed[bad].Error(), "disk full") || !errors.Is(failed[bad], yarn.ErrYarn) {
		t.Errorf("%v %v", failed, err)
	}
}

func TestKillPreemptAndLoseContainers(t *testing.T) {
	r := newRig(t)
	r.beat(r.ask(4))
	r.beat(&yarnpb.AllocateRequestProto{})
	for _, c := range r.granted {
		if err := r.nm.Start(t.Context(), nm.Launch{Container: c, Context: yarn.LaunchContext(nil, nil, nil, nil)}); err != nil {
			t.Fatal(err)
		}
	}
	first := idOf(r.granted[0])
	if err := r.fake.KillContainer(first, 137, "killed"); err != nil {
		t.Fatal(err)
	}
	r.beat(&yarnpb.AllocateRequestProto{})
	if len(r.done) != 1 || r.done[0].GetExitStatus() != 137 || yarn.ContainerIDOf(r.done[0].GetContainerId()) != first {
		t.Fatalf("%v", r.done)
	}
	if err := r.fake.KillContainer(first, 137, ""); err == nil {
		t.Error("killed twice")
	}
	r.fake.Preempt(idOf(r.granted[1]))
	a := r.beat(&yarnpb.AllocateRequestProto{})
	if l := a.GetPreempt().GetStrictContract().GetContainer(); len(l) != 1 || yarn.ContainerIDOf(l[0].GetId()) != idOf(r.granted[1]) {
		t.Errorf("preemption notice %v", a.GetPreempt())
	}
	r.fake.StopNode(0)
	a = r.beat(&yarnpb.AllocateRequestProto{})
	if len(a.GetUpdatedNodes()) != 1 || a.GetUpdatedNodes()[0].GetNodeState() != yarnpb.NodeStateProto_NS_LOST {
		t.Errorf("nodes %v", a.GetUpdatedNodes())
	}
	for _, st := range r.done[1:] {
		if st.GetExitStatus() != yarn.ExitAborted {
			t.Errorf("%v", st)
		}
	}
	live := r.fake.Stats(r.id).Live
	if len(live)+len(r.done) != 4 {
		t.Errorf("%d live, %d done", len(live), len(r.done))
	}
	for _, c := range r.granted {
		if yarn.NodeIDOf(c.GetNodeId()) == r.fake.Node(0) && slices.Contains(live, idOf(c)) {
			t.Errorf("%s lives on a lost node", idOf(c))
		}
	}
}

func TestGrantsWaitForTheDelay(t *testing.T) {
	r := newRig(t)
	r.fake.SetGrantDelay(time.Hour)
	r.beat(r.ask(1))
	for range 5 {
		r.beat(&yarnpb.AllocateRequestProto{})
	}
	if len(r.granted) != 0 {
		t.Fatal("granted before its time")
	}
	r.fake.SetGrantDelay(0)
	r.beat(&yarnpb.AllocateRequestProto{})
	if len(r.granted) != 1 {
		t.Errorf("%d grants", len(r.granted))
	}
}

// While the ResourceManager is down, Allocate waits; then it asks for a new registration, and asks are gone.
func TestRestartForgetsAsks(t *testing.T) {
	r := newRig(t)
	r.beat(r.ask(1))
	r.beat(&yarnpb.AllocateRequestProto{})
	if err := r.nm.Start(t.Context(), nm.Launch{Container: r.granted[0], Context: yarn.LaunchContext(nil, nil, nil, nil)}); err != nil {
		t.Fatal(err)
	}
	r.fake.SetGrantsPerBeat(1)
	r.beat(r.ask(30))
	r.fake.StopResourceManager()
	done := make(chan error, 1)
	go func() {
		_, err := r.am.Allocate(t.Context(), &yarnpb.AllocateRequestProto{})
		done <- err
	}()
	if err := r.fake.StartResourceManager(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, am.ErrResync) {
		t.Fatal(err)
	}
	if _, err := r.am.Register(t.Context(), am.Registration{Host: "h"}); err != nil {
		t.Fatal(err)
	}
	before := len(r.granted)
	for range 5 {
		r.beat(&yarnpb.AllocateRequestProto{})
	}
	if len(r.granted) != before {
		t.Error("asks survived")
	}
	if s := r.fake.Stats(r.id); len(s.Live) != 1 || s.Live[0] != idOf(r.granted[0]) {
		t.Errorf("live %v", s.Live)
	}
	r.beat(r.ask(1))
	r.beat(&yarnpb.AllocateRequestProto{})
	if got := idOf(r.granted[before]); got.Epoch() != 1 {
		t.Errorf("epoch of %s", got)
	}
}

// A master in this process, as a Runner: it dies, the next attempt finds its containers, the application ends well.
func TestRunnerAsMaster(t *testing.T) {
	var mu sync.Mutex
	var attempts []int32
	var f *yarnfake.Cluster
	ready := make(chan struct{})
	master := func(ctx context.Context, l yarnfake.Launch) error {
		<-ready
		mu.Lock()
		attempts = append(attempts, l.Container.Attempt.Attempt)
		mu.Unlock()
		a, err := am.FromCredentials(f.Conf(), l.Credentials)
		if err != nil {
			return err
		}
		defer a.Close() //nolint:errcheck // end of the test
		reg, err := a.Register(ctx, am.Registration{Host: "h"})
		if err != nil {
			return err
		}
		if l.Container.Attempt.Attempt == 1 {
			nodes := nm.New()
			defer nodes.Close() //nolint:errcheck // end of the test
			req := &yarnpb.AllocateRequestProto{Ask: []*yarnpb.ResourceRequestProto{yarn.Ask(1, 1, size, 1)}}
			for range 2 {
				ans, err := a.Allocate(ctx, req)
				if err != nil {
					return err
				}
				req = &yarnpb.AllocateRequestProto{}
				nodes.PutTokens(ans.GetNmTokens())
				for _, c := range ans.GetAllocatedContainers() {
					if err := nodes.Start(ctx, nm.Launch{Container: c, Context: yarn.LaunchContext(nil, nil, nil, nil)}); err != nil {
						return err
					}
				}
			}
			return errors.New("dies")
		}
		if len(reg.GetContainersFromPreviousAttempts()) != 1 || len(reg.GetNmTokensFromPreviousAttempts()) != 1 {
			return errors.New("containers are lost")
		}
		return a.Finish(ctx, yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, "fine", "")
	}
	f = fake(t, yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		if !l.Master {
			return yarnfake.Idle(ctx, l)
		}
		if err := master(ctx, l); err != nil {
			return 1, err.Error()
		}
		return 0, ""
	}))
	close(ready)
	rm, err := client.New(f.Conf())
	if err != nil {
		t.Fatal(err)
	}
	defer rm.Close() //nolint:errcheck // end of the test
	id, _, err := rm.NewApplication(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := rm.Submit(t.Context(), &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: id.Proto(), Queue: proto.String("default"), AmContainerSpec: yarn.LaunchContext([]string{"master"}, nil, nil, nil),
		Resource: size.Proto(), KeepContainersAcrossApplicationAttempts: proto.Bool(true),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := rm.Report(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if s := r.GetYarnApplicationState(); s == yarnpb.YarnApplicationStateProto_FINISHED {
			break
		} else if s == yarnpb.YarnApplicationStateProto_FAILED {
			t.Fatal(r.GetDiagnostics())
		}
		<-tick.C
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(attempts, []int32{1, 2}) {
		t.Errorf("attempts %v", attempts)
	}
}

func TestExpiredMaster(t *testing.T) {
	r := newRig(t, yarnfake.WithAMExpiry(20*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		rep, err := r.rm.Report(ctx, r.id)
		if err != nil {
			t.Fatal(err)
		}
		if rep.GetYarnApplicationState() == yarnpb.YarnApplicationStateProto_FAILED {
			break
		}
		<-tick.C
	}
	if _, err := r.am.Allocate(ctx, &yarnpb.AllocateRequestProto{}); !errors.Is(err, am.ErrShutdown) {
		t.Error(err)
	}
}
