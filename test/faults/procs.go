package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a process of the application.
type process struct {
	pid       int
	kind      Kind
	container string
	node      int // port of the NodeManager
}

// nodePort is the port of the NodeManager that started a container's process, 0 when its environment does not say.
func nodePort(env []byte) int {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if text, ok := bytes.CutPrefix(v, []byte("NM_PORT=")); ok {
			n, _ := strconv.Atoi(string(text)) // 0 then
			return n
		}
	}
	return 0
}

// processes lists the live processes of an application, by kind: those whose environment names one of its containers.
func processes(app string) ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	want := []byte("CONTAINER_ID=container_")
	id := strings.TrimPrefix(app, "application_")
	var all []process
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil {
			continue // ended, or not ours
		}
		i := bytes.Index(env, want)
		if i < 0 {
			continue
		}
		container := string(env[i+len("CONTAINER_ID="):])
		if j := strings.IndexByte(container, 0); j >= 0 {
			container = container[:j]
		}
		if !strings.Contains(container, id) {
			continue
		}
		cmd, err := os.ReadFile(d + "/cmdline")
		if err != nil || len(cmd) == 0 {
			continue
		}
		name := filepath.Base(string(bytes.SplitN(cmd, []byte{0}, 2)[0]))
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			return nil, fmt.Errorf("faults: %s: %w", d, err)
		}
		p := process{pid: pid, container: container, node: nodePort(env)}
		switch {
		case bytes.Contains(env, []byte("THALWEG_ROLE=worker")):
			p.kind = Worker
		case bytes.Contains(env, []byte("THALWEG_ROLE=")):
			p.kind = Coordinator
		case name == "thalweg-taskmanager":
			p.kind = TaskManager
		case name == "thalweg-appmaster":
			p.kind = ApplicationMaster
		default: // the NodeManager's shells
			continue
		}
		all = append(all, p)
	}
	return all, nil
}
