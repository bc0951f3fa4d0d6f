package am

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/am/allocator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Scheduler is the ResourceManager's side, as yarnrpc/am.Client speaks to it.
type Scheduler interface {
	Register(ctx context.Context, r rmclient.Registration) (*yarnpb.RegisterApplicationMasterResponseProto, error)
	Allocate(ctx context.Context, req *yarnpb.AllocateRequestProto) (rmclient.Answer, error)
	Finish(ctx context.Context, status yarnpb.FinalApplicationStatusProto, diagnostics, trackingURL string) error
}

// Nodes are the NodeManagers, as yarnrpc/nm.Client speaks to them.
type Nodes interface {
	PutTokens(tokens []*yarnpb.NMTokenProto)
	StartAll(ctx context.Context, id yarn.NodeID, launches []nm.Launch) (failed map[yarn.ContainerID]*nm.ContainerError, err error)
	Stop(ctx context.Context, id yarn.NodeID, containers ...yarn.ContainerID) (failed map[yarn.ContainerID]*nm.ContainerError, err error)
	Statuses(ctx context.Context, id yarn.NodeID, containers ...yarn.ContainerID) ([]*yarnpb.ContainerStatusProto, map[yarn.ContainerID]*nm.ContainerError, error)
}

// DriverOptions make a Driver.
type DriverOptions struct {
	Scheduler Scheduler
	Nodes     Nodes
	Config    config.Configuration
	// Registration is what the attempt tells about itself.
	Registration rmclient.Registration
	// Launch makes the launch context of a TaskManager in the container.
	Launch func(c *yarnpb.ContainerProto, spec resourcemanager.WorkerSpec) (*yarnpb.ContainerLaunchContextProto, error)
	// Prestart asks for that many workers of Spec before the JobMaster knows what it needs; its first RequestWorkers replaces it.
	Prestart int
	Spec     resourcemanager.WorkerSpec
	// PreemptAfter is how long the ResourceManager lets a container live that it preempts.
	PreemptAfter time.Duration
	// Tail fetches the last lines of a container's error file; nil for none.
	Tail   func(ctx context.Context, c *yarnpb.ContainerProto) string
	Logger zerolog.Logger
}

// Driver implements resourcemanager.Driver on YARN. Make it with NewDriver.
type Driver struct {
	o   DriverOptions
	log zerolog.Logger

	ctx    context.Context // the driver's life
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}
	beat   context.CancelFunc // ends the loop of calls
	beats  sync.WaitGroup
	events *deliveries

	mu         sync.Mutex
	ledger     *allocator.Allocator
	specs      map[allocator.Spec]resourcemanager.WorkerSpec
	containers map[yarn.ContainerID]*yarnpb.ContainerProto // granted, living
	largest    yarn.Resource
	others     yarn.Others // of a TaskManager
	queue      string
	prestarted bool
	fast       time.Time // until then the pace is fast, whatever is open
	openSince  time.Time
	answered   bool // an allocate was answered since registration
	ended      bool
}

const (
	startTimeout = 30 * time.Second // of a call to a NodeManager
	stopTimeout  = 5 * time.Second
	// problemAfter is how long asks stay open before the user is told.
	problemAfter = 5 * time.Second
	// suspectFor is how long the pace is fast after a TaskManager's connection broke.
	suspectFor = 10 * time.Second
)

// NewDriver returns a driver; Start starts it.
func NewDriver(o DriverOptions) *Driver {
	c := o.Config
	ctx, cancel := context.WithCancel(context.Background())
	d := &Driver{
		o: o, log: o.Logger.With().Str("component", "yarn").Logger(), ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), beat: func() {},
		specs: map[allocator.Spec]resourcemanager.WorkerSpec{}, containers: map[yarn.ContainerID]*yarnpb.ContainerProto{},
		ledger: allocator.New(allocator.Options{
			FailureRate: config.StartFailureRate.Value(c), RetryInterval: config.StartRetryInterval.Value(c), MaxFailures: config.StartFailureLimit.Value(c),
			RegisterTimeout: config.RegistrationTimeout.Value(c), RecoveryTimeout: config.PreviousWorkerTimeout.Value(c), PreemptAfter: o.PreemptAfter,
			ExcludeFailures: config.ExcludeFailures.Value(c), ExcludeFor: config.ExcludeFor.Value(c),
		}),
	}
	if amounts, err := config.ExternalAmounts(c); err == nil { // the submission has checked it
		d.others = yarn.OthersOf(amounts)
	}
	d.events = newDeliveries(d)
	return d
}

// Start registers the attempt and starts the loop of calls.
//
// Errors: rmclient.ErrShutdown when another attempt has taken over, the context's.
func (d *Driver) Start(ctx context.Context, events resourcemanager.Events) ([]resourcemanager.WorkerID, error) {
	resp, err := d.o.Scheduler.Register(ctx, d.o.Registration)
	if err != nil {
		return nil, fmt.Errorf("am: register with the ResourceManager: %w", err)
	}
	d.events.start(events)
	d.mu.Lock()
	d.registered(resp)
	var previous []resourcemanager.WorkerID
	for _, c := range d.ledger.Containers() {
		previous = append(previous, workerID(c.ID))
	}
	if n := d.o.Prestart - len(previous); n > 0 && !d.prestarted {
		d.want(d.o.Spec, d.o.Prestart)
	}
	d.mu.Unlock()
	beatCtx, beat := context.WithCancel(d.ctx)
	d.beat = beat
	d.beats.Go(func() { d.loop(beatCtx) })
	return previous, nil
}

// registered takes the answer to a registration over. Called with the lock.
func (d *Driver) registered(resp *yarnpb.RegisterApplicationMasterResponseProto) {
	d.largest, d.queue, d.answered = yarn.ResourceOf(resp.GetMaximumCapability()), resp.GetQueue(), false
	d.o.Nodes.PutTokens(resp.GetNmTokensFromPreviousAttempts())
	d.recovered(resp.GetContainersFromPreviousAttempts())
	d.log.Info().Str("queue", d.queue).Stringer("largest_container", d.largest).Int("previous_containers", len(resp.GetContainersFromPreviousAttempts())).Msg("registered with the ResourceManager")
}

func (d *Driver) recovered(list []*yarnpb.ContainerProto) {
	if len(list) == 0 {
		return
	}
	ev := allocator.Recovered{At: time.Now()}
	for _, p := range list {
		c := containerOf(p)
		if d.containers[c.ID] == nil {
			d.containers[c.ID] = p
		}
		ev.Containers = append(ev.Containers, c)
		d.log.Info().Stringer("container_id", c.ID).Stringer("node", c.Node).Int32("priority", c.Priority).Msg("container of an earlier attempt")
	}
	d.step(ev)
}

func workerID(id yarn.ContainerID) resourcemanager.WorkerID {
	return resourcemanager.WorkerID(id.String())
}

func containerOf(p *yarnpb.ContainerProto) allocator.Container {
	return allocator.Container{
		ID: yarn.ContainerIDOf(p.GetId()), Node: yarn.NodeIDOf(p.GetNodeId()), Priority: p.GetPriority().GetPriority(),
		RequestID: p.GetAllocationRequestId(), Resource: yarn.ResourceOf(p.GetResource()),
	}
}

// ledgerSpec is the worker's size as YARN counts it.
func (d *Driver) ledgerSpec(s resourcemanager.WorkerSpec) allocator.Spec {
	label := config.YarnWorkerNodeLabel.Value(d.o.Config)
	if label == "" {
		label = config.YarnNodeLabel.Value(d.o.Config)
	}
	size := yarn.Resource{MemoryMB: (s.MemoryBytes + 1<<20 - 1) >> 20, VCores: int32(s.Cores), Others: d.others} //nolint:gosec // cores are few
	return allocator.Spec{Resource: size, Label: label}
}

// want sets the number of workers. Called with the lock.
func (d *Driver) want(s resourcemanager.WorkerSpec, n int) {
	ls := d.ledgerSpec(s)
	if n > 0 && d.largest.MemoryMB > 0 && !ls.Resource.Fits(d.largest) {
		d.events.fatal(fmt.Errorf("am: a TaskManager of %s does not fit the largest container of queue %s (%s): lower %s or %s, or raise yarn.scheduler.maximum-allocation-mb/-vcores",
			ls.Resource, d.queue, d.largest, config.TaskManagerMemory.Key, memory.CoresKey(d.o.Config)))
		return
	}
	d.specs[ls] = s
	d.step(allocator.Want{Spec: ls, Count: n})
}

// RequestWorkers implements resourcemanager.Driver.
func (d *Driver) RequestWorkers(spec resourcemanager.WorkerSpec, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	if !d.prestarted && spec != d.o.Spec && d.o.Prestart > 0 {
		d.want(d.o.Spec, 0)
	}
	d.prestarted = true
	d.want(spec, n)
}

// ReleaseWorker implements resourcemanager.Driver.
func (d *Driver) ReleaseWorker(id resourcemanager.WorkerID) {
	if cid, err := yarn.ParseContainerID(string(id)); err == nil {
		d.apply(allocator.Release{At: time.Now(), ID: cid})
	}
}

// WorkerRegistered implements resourcemanager.Driver.
func (d *Driver) WorkerRegistered(id resourcemanager.WorkerID) {
	if cid, err := yarn.ParseContainerID(string(id)); err == nil {
		d.apply(allocator.Registered{ID: cid})
	}
}

// Suspect tells that the connection of the TaskManager in that container broke: its NodeManager is asked whether it ended, so that
// its replacement is asked for before the ResourceManager hears of it.
func (d *Driver) Suspect(id resourcemanager.WorkerID) {
	cid, err := yarn.ParseContainerID(string(id))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fast = time.Now().Add(suspectFor)
	d.wakeUp()
	if c := d.containers[cid]; err == nil && c != nil && !d.ended {
		d.wg.Go(func() { d.inspect(c) })
	}
}

// inspect asks the container's node a few times, faster than the ResourceManager would tell.
func (d *Driver) inspect(p *yarnpb.ContainerProto) {
	c := containerOf(p)
	ctx, cancel := context.WithTimeout(d.ctx, 3*time.Second)
	defer cancel()
	for _, wait := range []time.Duration{20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		if ipc.Sleep(ctx, wait) != nil {
			return
		}
		st, _, err := d.o.Nodes.Statuses(ctx, c.Node, c.ID)
		if err != nil {
			return // the node may be gone; the ResourceManager will tell
		}
		for _, s := range st {
			if s.GetState() == yarnpb.ContainerStateProto_C_COMPLETE {
				d.apply(allocator.Ends{At: time.Now(), Completed: []allocator.Status{statusOf(s)}})
				return
			}
		}
	}
}

func statusOf(s *yarnpb.ContainerStatusProto) allocator.Status {
	return allocator.Status{ID: yarn.ContainerIDOf(s.GetContainerId()), Exit: s.GetExitStatus(), Diagnostics: cleanDiagnostics(s.GetDiagnostics())}
}

func (d *Driver) apply(ev allocator.Event) {
	d.mu.Lock()
	d.step(ev)
	d.mu.Unlock()
}

func (d *Driver) wakeUp() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Deregister implements resourcemanager.Driver. After a restart of the ResourceManager it registers once more first.
func (d *Driver) Deregister(ctx context.Context, status resourcemanager.FinalStatus, diagnostics string) error {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.beat()
	d.beats.Wait()
	final := map[resourcemanager.FinalStatus]yarnpb.FinalApplicationStatusProto{
		resourcemanager.StatusUndefined: yarnpb.FinalApplicationStatusProto_APP_UNDEFINED,
		resourcemanager.StatusSucceeded: yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED,
		resourcemanager.StatusFailed:    yarnpb.FinalApplicationStatusProto_APP_FAILED,
		resourcemanager.StatusKilled:    yarnpb.FinalApplicationStatusProto_APP_KILLED,
	}[status]
	diagnostics = limitLines(d.o.Config.Redact(diagnostics), maxDiagnostics)
	err := d.o.Scheduler.Finish(ctx, final, diagnostics, "")
	if errors.Is(err, rmclient.ErrResync) {
		if _, err = d.o.Scheduler.Register(ctx, d.o.Registration); err == nil {
			err = d.o.Scheduler.Finish(ctx, final, diagnostics, "")
		}
	}
	if err != nil {
		return fmt.Errorf("am: unregister as %s: %w", status, err)
	}
	d.log.Info().Stringer("status", status).Msg("unregistered from the ResourceManager")
	return nil
}

// maxDiagnostics bounds what is handed to the ResourceManager, which keeps it in its store. In bytes.
const maxDiagnostics = 16 << 10

// limitLines is limit at the end of a line, and says how many more there are.
func limitLines(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := strings.LastIndexByte(s[:n], '\n')
	if end < 0 {
		return limit(s, n)
	}
	return fmt.Sprintf("%s\n  and %d more lines: see the application's jobmanager.log", s[:end], strings.Count(strings.TrimSpace(s[end+1:]), "\n")+1)
}

func limit(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + " ..."
}

// Close implements resourcemanager.Driver. Containers go on.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	d.cancel()
	d.beats.Wait()
	d.wg.Wait()
	d.events.stop()
	return nil
}

// Counts is the ledger in numbers, for metrics.
func (d *Driver) Counts() allocator.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Counts()
}

// request makes the message of an Allocate effect.
func request(e allocator.Allocate) *yarnpb.AllocateRequestProto {
	req := &yarnpb.AllocateRequestProto{Progress: proto.Float32(0)}
	for _, k := range e.Asks {
		ask := yarn.Ask(k.Priority, k.RequestID, k.Spec.Resource, int32(k.Count)) //nolint:gosec // a count of containers
		if k.Spec.Label != "" {
			ask.NodeLabelExpression = proto.String(k.Spec.Label)
		}
		req.Ask = append(req.Ask, ask)
	}
	for _, id := range e.Releases {
		req.Release = append(req.Release, id.Proto())
	}
	if len(e.Exclude)+len(e.Include) > 0 {
		req.BlacklistRequest = &yarnpb.ResourceBlacklistRequestProto{BlacklistAdditions: e.Exclude, BlacklistRemovals: e.Include}
	}
	return req
}
