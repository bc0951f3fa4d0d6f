// Package yarntest is the suite that every YARN must pass: the fake of yarnrpc/yarnfake and real daemons. It says what
// yarnrpc relies on. Layer L1, for tests only; imports yarnrpc/*.
//
// Entry point: Run. The process that runs the tests is the ApplicationMaster itself (an unmanaged one), so that nothing
// has to be copied to the cluster.
package yarntest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Env is the cluster under test. It must be free of other load: at least 1 GiB and 4 vcores are used.
type Env struct {
	Conf  *conf.Configuration
	Queue string // "default" when empty
	// Identity is who submits, on a cluster with Kerberos; nil for the user of the system.
	Identity *identity.Identity
	// RestartResourceManager kills the ResourceManager and starts it again on the same ports with its state recovered.
	// Without it the tests of recovery are skipped.
	RestartResourceManager func(t *testing.T)
	// RestartNodeManagers does the same with all NodeManagers, whose containers live on
	// (yarn.nodemanager.recovery.enabled and .supervised).
	RestartNodeManagers func(t *testing.T)
	// ConfDir is the folder of Conf's files when the cluster's nodes are on this machine; the suite then runs this test
	// binary as an ApplicationMaster (see RunMaster). Empty skips those tests.
	ConfDir string
	// RollsTokens says that the ResourceManager rolls the AMRM key within a minute by itself.
	RollsTokens bool
	// RollTokens makes it roll the key now.
	RollTokens func(t *testing.T)
	// Timeout bounds each test, 90 s when zero.
	Timeout time.Duration
}

// Run runs the suite.
func Run(t *testing.T, env Env) {
	if env.Queue == "" {
		env.Queue = "default"
	}
	if env.Timeout == 0 {
		env.Timeout = 90 * time.Second
	}
	tests := []struct {
		name string
		f    func(*testing.T, *suite)
	}{
		{"NewApplication", newApplication},
		{"Cluster", cluster},
		{"Queue", queue},
		{"UnknownApplication", unknownApplication},
		{"MissingQueue", missingQueue},
		{"ManagedFailure", managedFailure},
		{"ManagedKill", managedKill},
		{"ConcurrentCalls", concurrentCalls},
		{"Filters", filters},
		{"Life", life},
		{"ExitCodes", exitCodes},
		{"AsksAreAbsolute", asksAreAbsolute},
		{"AsksTakenBack", asksTakenBack},
		{"GrantsAreMatchedByRequestID", grantsByRequestID},
		{"LostAnswer", lostAnswer},
		{"TooLarge", tooLarge},
		{"WrongToken", wrongToken},
		{"UnregisteredAllocate", unregisteredAllocate},
		{"StartTwice", startTwice},
		{"KilledWhileRunning", killedWhileRunning},
		{"KeepContainers", keepContainers},
		{"TokenRoll", tokenRoll},
		{"NodeManagerRestart", nmRestart},
		{"ResourceManagerRestart", rmRestart},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), env.Timeout)
			defer cancel()
			s := &suite{Env: env, ctx: ctx, log: zerolog.New(zerolog.NewTestWriter(t))}
			s.rm = s.newClient(t)
			tc.f(t, s)
		})
	}
}

type suite struct {
	Env
	ctx context.Context
	log zerolog.Logger
	rm  *client.Client
}

func (s *suite) newClient(t *testing.T) *client.Client {
	t.Helper()
	opts := []client.Option{client.WithLogger(s.log)}
	if s.Identity != nil {
		opts = append(opts, client.WithIdentity(s.Identity))
	}
	c, err := client.New(s.Conf, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// until repeats f until it is true or the test's time is up.
func (s *suite) until(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			t.Fatalf("%s did not happen in time", what)
		}
	}
}

func (s *suite) submission(id yarn.ApplicationID, name string, spec *yarnpb.ContainerLaunchContextProto) *yarnpb.ApplicationSubmissionContextProto {
	size := yarn.Resource{MemoryMB: 64, VCores: 1}
	return &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: id.Proto(), ApplicationName: proto.String(name), Queue: proto.String(s.Queue), ApplicationType: proto.String("THALWEG-TEST"),
		Priority: &yarnpb.PriorityProto{Priority: proto.Int32(0)}, AmContainerSpec: spec, MaxAppAttempts: proto.Int32(1),
		Resource: size.Proto(), ApplicationTags: []string{"yarntest"},
	}
}

func (s *suite) report(t *testing.T, id yarn.ApplicationID) *yarnpb.ApplicationReportProto {
	t.Helper()
	r, err := s.rm.Report(s.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// waitState waits until the application is in one of the states.
func (s *suite) waitState(t *testing.T, id yarn.ApplicationID, want ...yarnpb.YarnApplicationStateProto) *yarnpb.ApplicationReportProto {
	t.Helper()
	var r *yarnpb.ApplicationReportProto
	s.until(t, fmt.Sprintf("%s in state %v", id, want), func() bool {
		r = s.report(t, id)
		for _, w := range want {
			if r.GetYarnApplicationState() == w {
				return true
			}
		}
		return false
	})
	return r
}

// master is an unmanaged ApplicationMaster under test.
type master struct {
	s   *suite
	id  yarn.ApplicationID
	tok token.Token
	am  *am.Client
	nm  *nm.Client
	reg *yarnpb.RegisterApplicationMasterResponseProto

	granted   []*yarnpb.ContainerProto
	completed map[yarn.ContainerID]*yarnpb.ContainerStatusProto
}

// unregistered submits an unmanaged application and waits for its token.
func (s *suite) unregistered(t *testing.T) *master {
	t.Helper()
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	sub := s.submission(id, t.Name(), yarn.LaunchContext(nil, nil, nil, nil))
	sub.UnmanagedAm = proto.Bool(true)
	if err := s.rm.Submit(s.ctx, sub); err != nil {
		t.Fatal(err)
	}
	m := &master{s: s, id: id, completed: make(map[yarn.ContainerID]*yarnpb.ContainerStatusProto)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.newClient(t).Kill(ctx, id, "end of the test"); err != nil {
			t.Errorf("kill %s: %v", id, err)
		}
	})
	s.until(t, "AMRM token", func() bool {
		m.tok = token.FromProto(s.report(t, id).GetAmRmToken())
		return !m.tok.IsZero()
	})
	creds := &token.Credentials{}
	creds.Put("", m.tok)
	if m.am, err = am.FromCredentials(s.Conf, creds, am.WithLogger(s.log)); err != nil {
		t.Fatal(err)
	}
	m.nm = nm.New(nm.WithLogger(s.log))
	t.Cleanup(func() { _ = m.am.Close(); _ = m.nm.Close() })
	return m
}

func (s *suite) master(t *testing.T) *master {
	t.Helper()
	m := s.unregistered(t)
	m.register(t)
	return m
}

func (m *master) register(t *testing.T) {
	t.Helper()
	reg, err := m.am.Register(m.s.ctx, am.Registration{Host: "localhost", RPCPort: -1, TrackingURL: "http://localhost:1/" + m.id.String()})
	if err != nil {
		t.Fatal(err)
	}
	m.reg = reg
	m.nm.PutTokens(reg.GetNmTokensFromPreviousAttempts())
}

// beat sends one heartbeat.
func (m *master) beat(t *testing.T, req *yarnpb.AllocateRequestProto) am.Answer {
	t.Helper()
	a, err := m.am.Allocate(m.s.ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	m.apply(a)
	return a
}

func (m *master) apply(a am.Answer) {
	m.nm.PutTokens(a.GetNmTokens())
	m.granted = append(m.granted, a.GetAllocatedContainers()...)
	for _, st := range a.GetCompletedContainerStatuses() {
		m.completed[yarn.ContainerIDOf(st.GetContainerId())] = st
	}
}

// beatUntil sends heartbeats, the first with req, until f is true.
func (m *master) beatUntil(t *testing.T, req *yarnpb.AllocateRequestProto, what string, f func() bool) {
	t.Helper()
	m.s.until(t, what, func() bool {
		m.beat(t, req)
		req = &yarnpb.AllocateRequestProto{}
		return f()
	})
}

var small = yarn.Resource{MemoryMB: 64, VCores: 1}

// acquire asks for n containers and takes the ask back as they are granted.
func (m *master) acquire(t *testing.T, n int) []*yarnpb.ContainerProto {
	t.Helper()
	from := len(m.granted)
	m.beatUntil(t, asks(yarn.Ask(1, 1, small, int32(n))), fmt.Sprintf("%d grants", n), func() bool { return len(m.granted)-from >= n }) //nolint:gosec // small
	return m.granted[from:]
}

func asks(a ...*yarnpb.ResourceRequestProto) *yarnpb.AllocateRequestProto {
	return &yarnpb.AllocateRequestProto{Ask: a}
}

func shell(script string) *yarnpb.ContainerLaunchContextProto {
	return yarn.LaunchContext([]string{"/bin/bash -c '" + script + "' 1><LOG_DIR>/out 2><LOG_DIR>/err"}, map[string]string{"YARNTEST": "value"}, nil, nil)
}

func (m *master) start(t *testing.T, c *yarnpb.ContainerProto, script string) {
	t.Helper()
	if err := m.nm.Start(m.s.ctx, nm.Launch{Container: c, Context: shell(script)}); err != nil {
		t.Fatal(err)
	}
}

func idOf(c *yarnpb.ContainerProto) yarn.ContainerID { return yarn.ContainerIDOf(c.GetId()) }

func newApplication(t *testing.T, s *suite) {
	seen := make(map[yarn.ApplicationID]bool)
	for range 3 {
		id, largest, err := s.rm.NewApplication(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if seen[id] || id.ClusterTimestamp == 0 || id.ID == 0 {
			t.Fatalf("id %s: again or empty", id)
		}
		seen[id] = true
		if largest.MemoryMB < 64 || largest.VCores < 1 {
			t.Fatalf("largest container is %s", largest)
		}
		if back, err := yarn.ParseApplicationID(id.String()); err != nil || back != id {
			t.Fatalf("parse %s: %v, %v", id, back, err)
		}
	}
}

func cluster(t *testing.T, s *suite) {
	var nodes []*yarnpb.NodeReportProto
	s.until(t, "a running node", func() bool {
		var err error
		if nodes, err = s.rm.Nodes(s.ctx, yarnpb.NodeStateProto_NS_RUNNING); err != nil {
			t.Fatal(err)
		}
		return len(nodes) > 0
	})
	for _, n := range nodes {
		if yarn.NodeIDOf(n.GetNodeId()).Port == 0 || yarn.ResourceOf(n.GetCapability()).MemoryMB == 0 {
			t.Errorf("node: %v", n)
		}
	}
	m, err := s.rm.Metrics(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if int(m.GetNumNodeManagers()) < len(nodes) {
		t.Errorf("%d nodes, metrics: %v", len(nodes), m)
	}
}

func queue(t *testing.T, s *suite) {
	q, err := s.rm.Queue(s.ctx, s.Queue)
	if err != nil {
		t.Fatal(err)
	}
	if q.GetState() != yarnpb.QueueStateProto_Q_RUNNING {
		t.Errorf("queue %s is %s", s.Queue, q.GetState())
	}
	var missing *client.QueueNotFoundError
	if _, err := s.rm.Queue(s.ctx, "no-such-queue"); !errors.As(err, &missing) {
		t.Errorf("missing queue: %v", err)
	}
}

func unknownApplication(t *testing.T, s *suite) {
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.rm.Report(s.ctx, id); !errors.Is(err, yarn.ErrApplicationNotFound) || !strings.Contains(err.Error(), id.String()) {
		t.Errorf("report: %v", err)
	}
	if err := s.rm.Kill(s.ctx, id, ""); !errors.Is(err, yarn.ErrApplicationNotFound) {
		t.Errorf("kill: %v", err)
	}
}

func missingQueue(t *testing.T, s *suite) {
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	sub := s.submission(id, t.Name(), shell("true"))
	sub.Queue = proto.String("no-such-queue")
	if err = s.rm.Submit(s.ctx, sub); err == nil || !strings.Contains(err.Error(), "no-such-queue") {
		t.Errorf("submit: %v", err)
	}
}

func managedFailure(t *testing.T, s *suite) {
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Submit waits for the acceptance, and may find that the application has failed already: it says so then.
	if err := s.rm.Submit(s.ctx, s.submission(id, t.Name(), shell("exit 7"))); err != nil && !strings.Contains(err.Error(), "exitCode: 7") {
		t.Fatal(err)
	}
	r := s.waitState(t, id, yarnpb.YarnApplicationStateProto_FAILED)
	if r.GetFinalApplicationStatus() != yarnpb.FinalApplicationStatusProto_APP_FAILED || !strings.Contains(r.GetDiagnostics(), "7") {
		t.Errorf("status %s, diagnostics %q", r.GetFinalApplicationStatus(), r.GetDiagnostics())
	}
	list, err := s.rm.Attempts(s.ctx, id)
	if err != nil || len(list) != 1 {
		t.Errorf("attempts: %v, %v", list, err)
	}
}

func managedKill(t *testing.T, s *suite) {
	id, _, err := s.rm.NewApplication(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.rm.Submit(s.ctx, s.submission(id, t.Name(), shell("sleep 600"))); err != nil {
		t.Fatal(err)
	}
	if err := s.rm.Kill(s.ctx, id, "because"); err != nil {
		t.Fatal(err)
	}
	if r := s.report(t, id); r.GetYarnApplicationState() != yarnpb.YarnApplicationStateProto_KILLED {
		t.Errorf("state after kill: %s", r.GetYarnApplicationState())
	}
	if err := s.rm.Kill(s.ctx, id, "again"); err != nil {
		t.Errorf("second kill: %v", err)
	}
}

func concurrentCalls(t *testing.T, s *suite) {
	const n = 100
	errs := make(chan error, n)
	ids := make(chan yarn.ApplicationID, n)
	for range n {
		go func() {
			id, _, err := s.rm.NewApplication(s.ctx)
			ids <- id
			errs <- err
		}()
	}
	seen := make(map[yarn.ApplicationID]bool)
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		seen[<-ids] = true
	}
	if len(seen) != n {
		t.Errorf("%d different ids of %d", len(seen), n)
	}
}

func filters(t *testing.T, s *suite) {
	m := s.master(t)
	for name, tc := range map[string]struct {
		f    client.Filter
		want bool
	}{
		"name":        {client.Filter{Name: t.Name()}, true},
		"other name":  {client.Filter{Name: "nothing"}, false},
		"type":        {client.Filter{Types: []string{"THALWEG-TEST"}, Name: t.Name()}, true},
		"other type":  {client.Filter{Types: []string{"MAPREDUCE"}}, false},
		"state":       {client.Filter{States: []yarnpb.YarnApplicationStateProto{yarnpb.YarnApplicationStateProto_RUNNING}}, true},
		"other state": {client.Filter{States: []yarnpb.YarnApplicationStateProto{yarnpb.YarnApplicationStateProto_FINISHED}}, false},
		"tag":         {client.Filter{Tags: []string{"YarnTest"}, Name: t.Name()}, true},
	} {
		apps, err := s.rm.Applications(s.ctx, tc.f)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, a := range apps {
			found = found || yarn.ApplicationIDOf(a.GetApplicationId()) == m.id
		}
		if found != tc.want {
			t.Errorf("filter by %s: found %v, want %v", name, found, tc.want)
		}
	}
}
