package am

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/am/container"
)

// runCommand runs a container's command as the NodeManager's script does: between double quotes.
func runCommand(t *testing.T, content, want string) (code int, prelaunch string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), []byte(content), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	h := sha256.Sum256([]byte(want))
	c := strings.ReplaceAll(command("prog", "log", container.File{Name: "prog", SHA256: hex.EncodeToString(h[:]), URI: "hdfs://nn:8020/user/ann/.thalweg/lib/x-prog"})[0], "<LOG_DIR>", dir)
	cmd := exec.Command("/bin/bash", "-c", "exec /bin/bash -c \""+c+"\"")
	cmd.Dir = dir
	_ = cmd.Run() // the code is looked at
	b, err := os.ReadFile(filepath.Join(dir, "prelaunch.err"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// A program that is damaged is named where the NodeManager takes its diagnostics from; another's exit is its own.
func TestLaunchNamesDamagedProgram(t *testing.T) {
	const good = "#!/bin/sh\nexit 7\n"
	if code, text := runCommand(t, good, good); code != 7 || text != "" {
		t.Errorf("a good program: %d, %q", code, text)
	}
	if code, text := runCommand(t, strings.Repeat("\x00", len(good)), good); code != 126 ||
		!strings.Contains(text, "prog: the content of the staged file hdfs://nn:8020/user/ann/.thalweg/lib/x-prog, or of the copy on this node, does not match its name") {
		t.Errorf("a damaged program: %d, %q", code, text)
	}
	zeros := strings.Repeat("\x00", 100)
	if code, text := runCommand(t, zeros, zeros); code != 126 || text != "" {
		t.Errorf("a program that is none: %d, %q", code, text)
	}
}
