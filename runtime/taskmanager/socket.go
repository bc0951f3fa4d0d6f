package taskmanager

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/thalweg/thalweg/internal/process"
)

// SocketPath makes a private folder (mode 0700) for a job process's control socket and names the socket in it. The folder is in the
// system's temporary folder, since paths of sockets are short (108 bytes) and containers' folders are long. The caller removes it; what a killed
// process of this user left is removed by a later call.
func SocketPath() (dir, sock string, err error) {
	const longest = 38 // what process.Folder and the socket's own name leave of the 108 bytes
	base := os.TempDir()
	if len(base) > longest {
		base = "/tmp"
	}
	if dir, err = process.Folder(base, "thalweg-sock-"); err != nil {
		return "", "", fmt.Errorf("taskmanager: make folder for a socket: %w", err)
	}
	return dir, filepath.Join(dir, "ctl"), nil
}
