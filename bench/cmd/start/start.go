package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/proc"
)

// start is one start of one side. Times are milliseconds since the command was started.
type start struct {
	Application string             `json:"application"`
	First       float64            `json:"first_record_ms"`
	Client      float64            `json:"client_exits_ms"`
	ClientCPU   float64            `json:"client_cpu_s"`
	ClientPeak  float64            `json:"client_peak_mib"`
	CPU         float64            `json:"cpu_s"`         // client and containers until the first record
	SettledCPU  float64            `json:"settled_cpu_s"` // the same 5 s later
	Resident    map[string]float64 `json:"resident_mib"`  // by part, 5 s after the first record
	Sent        int64              `json:"sent_bytes"`    // ours only: what the submission uploaded
	Phases      []phase            `json:"phases"`
}

// phase is a moment of a start.
type phase struct {
	Name string  `json:"phase"`
	At   float64 `json:"ms"`
}

const (
	recordWait = 2 * time.Minute
	settle     = 5 * time.Second
)

// probe hears the first record.
type probe struct {
	conn *net.UDPConn
}

func listen() (*probe, error) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for the first record: %w", err)
	}
	return &probe{c}, nil
}

func (p *probe) close() error { return p.conn.Close() }

func (p *probe) addr() string { return p.conn.LocalAddr().String() }

// drain forgets datagrams of an earlier run.
func (p *probe) drain() error {
	b := make([]byte, 100)
	for {
		if err := p.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return err
		}
		if _, err := p.conn.Read(b); err != nil {
			return nil //nolint:nilerr // nothing is there any more
		}
	}
}

// first waits for the next datagram and returns the time in it.
func (p *probe) first(ctx context.Context, failed <-chan error) (int64, error) {
	b := make([]byte, 100)
	end := time.Now().Add(recordWait)
	for time.Now().Before(end) {
		select {
		case err := <-failed:
			return 0, err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		default:
		}
		if err := p.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return 0, err
		}
		n, err := p.conn.Read(b)
		if err == nil {
			return strconv.ParseInt(string(b[:n]), 10, 64)
		}
	}
	return 0, fmt.Errorf("no record within %v", recordWait)
}

func (b *bench) command(ctx context.Context, side, name string) *exec.Cmd {
	args := []string{"--case", "start", "--probe", b.probe.addr(), "--rate", "100"}
	if side == thalweg {
		cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "thalweg"), append([]string{"run", "-t", "yarn-application", "-d", "-o", "json", "-Dyarn.application.name=" + name, b.pipe}, args...)...)
		cmd.Env = append(os.Environ(), b.cluster.Env()...)
		return cmd
	}
	var settings []string
	if side == tuned {
		settings = []string{"-Dyarn.heartbeat.interval=1", "-Dyarn.heartbeat.container-request-interval=100"}
	}
	return b.yarn.Submit(ctx, name, "thalweg.bench.Pipe", settings, args...)
}

// start starts one side, measures it, and ends it.
func (b *bench) start(ctx context.Context, side string) (s start, err error) {
	b.n++
	name := fmt.Sprintf("bench-start-%d-%d", os.Getpid(), b.n)
	if err := b.probe.drain(); err != nil {
		return s, err
	}
	cmd := b.command(ctx, side, name)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	t0 := time.Now()
	if err := cmd.Start(); err != nil {
		return s, err
	}
	exited, failed := make(chan struct{}), make(chan error, 1)
	var exit time.Time
	go func() { // ends with the client
		err := cmd.Wait()
		exit = time.Now()
		if err != nil {
			failed <- fmt.Errorf("client: %w: %.2000s", err, log.String()+out.String())
		}
		close(exited)
	}()
	app, err := b.application(ctx, name, failed)
	if err != nil {
		return s, err
	}
	tracker := proc.Track(proc.Container(app.ID))
	s.Application = app.ID
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, b.end(clean, app.ID, tracker))
	}()
	at, err := b.probe.first(ctx, failed)
	if err != nil {
		return s, fmt.Errorf("%s: %w", app.ID, err)
	}
	containers := tracker.Usage().CPU
	ms := func(unix int64) float64 { return float64(unix - t0.UnixMilli()) }
	s.First = ms(at)
	select {
	case <-exited:
	case <-time.After(recordWait):
		return s, errors.New("the client does not end")
	}
	s.Client = float64(exit.Sub(t0).Milliseconds())
	s.ClientCPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	s.ClientPeak = peak(cmd.ProcessState)
	s.CPU = containers.Seconds() + s.ClientCPU
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
	s.SettledCPU = tracker.Usage().CPU.Seconds() + s.ClientCPU
	s.Resident = map[string]float64{}
	for _, p := range tracker.Live() {
		if part := partOf(p); part != "" {
			s.Resident[part] += float64(p.RSS) / (1 << 20)
		}
	}
	if app, err = flink.App(ctx, b.cluster, app.ID); err != nil {
		return s, err
	}
	s.phases(b, side, t0.UnixMilli(), app, out.String())
	b.logf("%-13s first record after %5.0f ms, %5.2f CPU s, client %4.0f ms", side, s.First, s.CPU, s.Client)
	return s, nil
}

func (b *bench) application(ctx context.Context, name string, failed <-chan error) (app flink.Application, err error) {
	err = flink.Until(ctx, time.Minute, "the application", func(ctx context.Context) (ok bool, err error) {
		select {
		case err := <-failed:
			return false, err
		default:
		}
		app, ok, err = flink.Named(ctx, b.cluster, name)
		return ok, err
	})
	return app, err
}

// end kills the application and waits until its processes are gone.
func (b *bench) end(ctx context.Context, id string, t *proc.Tracker) error {
	defer t.Stop()
	if err := flink.Kill(ctx, b.cluster, id); err != nil {
		return err
	}
	return flink.Until(ctx, time.Minute, "the end of the processes of "+id, func(context.Context) (bool, error) { return t.Usage().Live == 0, nil })
}

// partOf names a process of a container; "" for the NodeManager's shells.
func partOf(p proc.Process) string {
	if len(p.Command) == 0 {
		return ""
	}
	all := strings.Join(p.Command, " ")
	env := proc.Environment(p.PID)
	switch base := filepath.Base(p.Command[0]); {
	case base == "thalweg-appmaster", strings.Contains(all, "YarnApplicationClusterEntryPoint") && base == "java":
		return "AM"
	case base == "thalweg-taskmanager", strings.Contains(all, "YarnTaskExecutorRunner") && base == "java":
		return "TaskManager"
	case bytes.Contains(env, []byte("THALWEG_ROLE=worker")):
		return "worker"
	case bytes.Contains(env, []byte("THALWEG_ROLE=coordinator")):
		return "coordinator"
	}
	return ""
}

// submission is what our client prints at its end.
type submission struct {
	Event  string `json:"event"`
	Sent   int64  `json:"sentBytes"`
	Phases []struct {
		Name string  `json:"phase"`
		Ms   float64 `json:"ms"`
	} `json:"phases"`
}

// phases reads the moments of the start from the logs.
func (s *start) phases(b *bench, side string, t0 int64, app flink.Application, out string) {
	s.add("accepted by the ResourceManager", float64(app.Started-t0))
	s.add("AM launched by the ResourceManager", float64(app.Launched-t0))
	if side == thalweg {
		for line := range strings.Lines(out) {
			var r submission
			if json.Unmarshal([]byte(line), &r) != nil || r.Event != "submitted" {
				continue
			}
			s.Sent = r.Sent
			begun := s.Client
			for _, p := range r.Phases {
				begun -= p.Ms
			}
			for _, p := range r.Phases {
				begun += p.Ms
				s.add("client: "+p.Name+" done", begun)
			}
		}
	}
	for _, m := range moments(b.cluster.ContainerLogs(), app.ID, side) {
		s.add(m.Name, m.At-float64(t0))
	}
	s.add("first record", s.First)
}

func (s *start) add(name string, at float64) { s.Phases = append(s.Phases, phase{name, at}) }
