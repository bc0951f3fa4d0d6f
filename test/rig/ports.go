package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Offsets of the ports from the base of the cluster's block. The last two digits are those of the products' own defaults where
// they have one (8020, 9870, 8032, 8088, 9092).
const (
	portNameNode        = 20
	portNameNodeHTTP    = 70
	portDataNode        = 66
	portDataNodeIPC     = 67
	portDataNodeHTTP    = 64
	portRMScheduler     = 30
	portRMTracker       = 31
	portRM              = 32
	portRMAdmin         = 33
	portRMHTTP          = 88
	portNMLocalizer     = 40 // + 10 per further NodeManager
	portNM              = 41
	portNMHTTP          = 42
	portNMCollector     = 43
	portKafka           = 92
	portKafkaController = 93
	portKafkaSASL       = 94
	portKafkaTLS        = 95

	// Of secured clusters, and of pairs.
	portZooKeeper        = 11
	portKDC              = 18
	portZKFC             = 19
	portZKFC2            = 22
	portNameNodeHTTPS    = 71
	portDataNodeHTTPS    = 65 // + dn2Shift for the second
	portJournalNode      = 85
	portJournalNodeHTTP  = 80
	portJournalNodeHTTPS = 81
	nn2Shift             = 1 // from the RPC port of the first NameNode; its web ports are
	portNameNode2HTTP    = 72
	portNameNode2HTTPS   = 73
	rm2Shift             = 4 // from the RPC ports of the first ResourceManager; its web port is
	portRM2HTTP          = 89

	defaultPortBase = 18000
	portBlock       = 100
	portBlocks      = 40
)

// host is the name under which every daemon of the rig is known; it listens on the loopback interface only.
const host = "localhost"

// timeWait is a little more than the minute for which the system keeps the port of a closed connection (TIME_WAIT).
const timeWait = 70 * time.Second

// secondHost is that of the second NodeManager in a cluster of two hosts (THALWEG_RIG_HOSTS=2): YARN excludes nodes by their hosts.
const secondHost = "127.0.0.2"

func (s state) addr(offset int) string {
	return net.JoinHostPort(host, strconv.Itoa(s.PortBase+offset))
}

// hostOf is where a daemon listens.
func (s state) hostOf(daemon string) string {
	if daemon == NodeManager2 && s.Hosts == 2 {
		return secondHost
	}
	return host
}

// nodeAddr is an address of a NodeManager.
func (s state) nodeAddr(name string, offset int) string {
	return net.JoinHostPort(s.hostOf(name), strconv.Itoa(s.PortBase+offset+nmShift(name)))
}

// wantedHosts is THALWEG_RIG_HOSTS for a new cluster, 1 by default.
func wantedHosts() (int, error) {
	switch v := os.Getenv("THALWEG_RIG_HOSTS"); v {
	case "", "1":
		return 1, nil
	case "2":
		return 2, nil
	default:
		return 0, fmt.Errorf("rig: THALWEG_RIG_HOSTS=%q: expected 1 or 2", v)
	}
}

// wantedBase is the first block to try: THALWEG_PORT_BASE or the default.
func wantedBase() (int, error) {
	v := os.Getenv("THALWEG_PORT_BASE")
	if v == "" {
		return defaultPortBase, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1024 || n > 65535-portBlock {
		return 0, fmt.Errorf("rig: THALWEG_PORT_BASE=%q: expected a number from 1024 to %d", v, 65535-portBlock)
	}
	return n, nil
}

// choosePorts returns the first block at or above base whose ports are all free, with a function that gives up the reservation. The
// reservation is a lock file shared by all rigs of this user; it covers the time until the daemons hold the ports themselves.
func choosePorts(base int, offsets []int) (int, func(), error) {
	dir := filepath.Join(os.TempDir(), "thalweg-rig-ports."+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, nil, fmt.Errorf("rig: reserve ports: %w", err)
	}
	for i := range portBlocks {
		b := base + i*portBlock
		if b+portBlock > 65535 {
			break
		}
		release, err := tryLock(filepath.Join(dir, strconv.Itoa(b)))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if allFree(b, offsets) {
			return b, release, nil
		}
		release()
	}
	return 0, nil, fmt.Errorf("rig: no block of %d free ports from %d upwards: set THALWEG_PORT_BASE", portBlock, base)
}

func allFree(base int, offsets []int) bool {
	for _, o := range offsets {
		for _, h := range []string{"127.0.0.1", ""} {
			l, err := net.Listen("tcp", net.JoinHostPort(h, strconv.Itoa(base+o)))
			if err != nil {
				return false
			}
			_ = l.Close()
		}
	}
	return true
}

var errLocked = errors.New("locked by another process")

// tryLock takes an advisory lock that ends with the process or by the returned function.
func tryLock(path string) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("rig: lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("rig: lock %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("rig: lock %s: %w", path, err)
	}
	held, err := f.Stat()
	if there, statErr := os.Stat(path); err != nil || statErr != nil || !os.SameFile(held, there) { // removed by who had it before
		_ = f.Close()
		return nil, errLocked
	}
	return func() { _ = f.Close() }, nil
}

// lockFile waits for the lock of path, at most limit.
func lockFile(ctx context.Context, path string, limit time.Duration) (func(), error) {
	var unlock func()
	err := poll(ctx, limit, 100*time.Millisecond, func() error {
		u, err := tryLock(path)
		unlock = u
		return err
	})
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("rig: another rig command has held %s for %s: wait for it or end it", path, limit)
	}
	return unlock, err
}
