package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// A network that is cut is a rule of the kernel's packet filter on the loopback interface, over which all processes of the rig talk: packets
// to and from the ports of a listener are dropped, and connections stay open and silent. It takes root.

// way is which packets of a listener are dropped.
type way struct {
	to, from bool
	share    float64 // of the packets, 1: all
	rate     int     // bytes a second that pass nevertheless, each way and port; 0: none
}

var bothWays = way{to: true, from: true, share: 1}

// megabit is 1 Mbit/s in bytes.
const megabit = 125_000

// filter is what of iptables the kernel knows: the usual one speaks nftables.
func filter(ctx context.Context, args ...string) error {
	var errs []error
	for _, program := range []string{"iptables", "iptables-legacy"} {
		out, err := exec.CommandContext(ctx, program, append([]string{"-w", "5"}, args...)...).CombinedOutput()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("faults: %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out))))
	}
	return errors.Join(errs...)
}

// drop drops packets of ports until heal.
func drop(ctx context.Context, ports []int, w way) (heal func() error, err error) {
	var rules [][]string
	for _, p := range ports {
		for side, on := range map[string]bool{"--dport": w.to, "--sport": w.from} {
			if !on {
				continue
			}
			rule := []string{"INPUT", "-i", "lo", "-p", "tcp", side, strconv.Itoa(p)}
			if w.share < 1 {
				rule = append(rule, "-m", "statistic", "--mode", "random", "--probability", strconv.FormatFloat(w.share, 'f', 4, 64))
			}
			if w.rate > 0 { // packets of the loopback interface have up to 64 KiB
				rule = append(rule, "-m", "hashlimit", "--hashlimit-above", fmt.Sprintf("%db/s", w.rate), "--hashlimit-burst", "128kb",
					"--hashlimit-mode", map[string]string{"--dport": "dstport", "--sport": "srcport"}[side], "--hashlimit-name", fmt.Sprintf("thalweg%s%d", side[2:3], p))
			}
			rules = append(rules, append(rule, "-j", "DROP"))
		}
	}
	var in [][]string
	heal = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		var errs []error
		for _, r := range in {
			errs = append(errs, filter(ctx, append([]string{"-D"}, r...)...))
		}
		return errors.Join(errs...)
	}
	for _, r := range rules {
		if err := filter(ctx, append([]string{"-I"}, r...)...); err != nil {
			return nil, errors.Join(err, heal())
		}
		in = append(in, r)
	}
	return heal, nil
}

// cut drops packets of the ports that find names, for d.
func cut(name string, d time.Duration, w way, find func(*run) ([]int, error)) Fault {
	return Fault{Name: fmt.Sprintf("network cut: %s for %v", name, d), Root: true, Do: func(ctx context.Context, r *run) error {
		ports, err := find(r)
		if err != nil {
			return err
		}
		heal, err := drop(ctx, ports, w)
		if err != nil {
			return err
		}
		return errors.Join(r.pause(ctx, d), heal())
	}}
}

// listeners are the ports at which the job's processes of a kind listen.
func listeners(k Kind) func(*run) ([]int, error) {
	return func(r *run) ([]int, error) {
		all, err := processes(r.job.app)
		if err != nil {
			return nil, err
		}
		var ports []int
		for _, p := range all {
			if p.kind != k {
				continue
			}
			of, err := listening(p.pid)
			if err != nil {
				return nil, err
			}
			ports = append(ports, of...)
		}
		if len(ports) == 0 {
			return nil, fmt.Errorf("faults: no %s of %s listens", k, r.job.app)
		}
		return ports, nil
	}
}

// scheduler is the ResourceManager's port for application masters.
func scheduler(r *run) ([]int, error) {
	c, err := conf.Load(conf.WithDirs(r.o.Cluster.HadoopConfDir))
	if err != nil {
		return nil, err
	}
	all, err := c.Schedulers()
	if err != nil {
		return nil, err
	}
	return portsOf(all...)
}

func nameNode(r *run) ([]int, error) { return portsOf(r.o.Cluster.NameNode) }

func portsOf(addresses ...string) (ports []int, err error) {
	for _, a := range addresses {
		_, p, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("faults: address %q: %w", a, err)
		}
		n, err := strconv.Atoi(p)
		if err != nil {
			return nil, fmt.Errorf("faults: address %q: %w", a, err)
		}
		ports = append(ports, n)
	}
	return ports, nil
}

// diesUnheard kills a worker whose connections drop all: the others have sockets of which nobody is at the other end.
func diesUnheard(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("kill worker, whose network is cut for %v", d), Root: true, Do: func(ctx context.Context, r *run) error {
		p, err := r.one(Worker)
		if err != nil {
			return err
		}
		ports, err := connections(p.pid)
		if err != nil {
			return err
		}
		heal, err := drop(ctx, ports, bothWays)
		if err != nil {
			return err
		}
		r.logf("kill -9 the worker, pid %d of %s, behind %d ports that drop all", p.pid, p.container, len(ports))
		err = syscall.Kill(p.pid, syscall.SIGKILL)
		return errors.Join(err, r.pause(ctx, d), heal())
	}}
}

// cutFaults are those of the network between processes.
func cutFaults() []Fault {
	return []Fault{
		cut("between workers", 15*time.Second, bothWays, listeners(Worker)),
		cut("one way between workers", 8*time.Second, way{from: true, share: 1}, listeners(Worker)),
		cut("a tenth of the packets between workers", 8*time.Second, way{to: true, from: true, share: 0.1}, listeners(Worker)),
		cut("one way from TaskManagers to application master", 12*time.Second, way{to: true, share: 1}, listeners(ApplicationMaster)),
		cut("one way from application master to TaskManagers", 12*time.Second, way{from: true, share: 1}, listeners(ApplicationMaster)),
		cut("all but 1 Mbit/s between workers", 10*time.Second, way{to: true, from: true, share: 1, rate: megabit}, listeners(Worker)),
		cut("all but 1 Mbit/s between TaskManagers and application master", 10*time.Second, way{to: true, from: true, share: 1, rate: megabit}, listeners(ApplicationMaster)),
		cut("all but 1 Mbit/s between the job and the NameNode", 10*time.Second, way{to: true, from: true, share: 1, rate: megabit}, nameNode),
		diesUnheard(12 * time.Second),
		cut("between TaskManagers and application master", 15*time.Second, bothWays, listeners(ApplicationMaster)),
		cut("between application master and ResourceManager", 15*time.Second, bothWays, scheduler),
		cut("between the job and the NameNode", 12*time.Second, bothWays, nameNode),
	}
}
