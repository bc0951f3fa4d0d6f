package rig

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// A secure NodeManager reads its containers' logs through libhadoop.so, and ends without it when the first logs are collected. This build of Hadoop 3.3.5
// works with 3.4.
const nativeJar = "hadoop-apache-3.3.5-3.jar"

// shellJar is a stock application: it runs a command in containers.
const shellJar = "hadoop-yarn-applications-distributedshell-" + HadoopVersion + ".jar"

// nativeSums are the SHA-256 of the library, by the architecture's name in the jar.
func nativeSums() map[string]string {
	return map[string]string{
		"amd64":   "4eb6b773bba879f77862d6e262f6f5d503342429f07b989409cbe9939eb2c217",
		"aarch64": "8237d55791548035f412b25e03d0b7898aea422e8e6604f0726c12a72b762d74",
	}
}

// installNative makes sure that libhadoop.so, and shellJar, lie in the returned folder.
func (r *runner) installNative(ctx context.Context, jarsDir string) (string, error) {
	dir, err := r.install(ctx, jarsDir, "secure")
	if err != nil {
		return "", err
	}
	lib := filepath.Join(dir, "libhadoop.so")
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "aarch64"
	}
	want, ok := nativeSums()[arch]
	if !ok {
		return "", fmt.Errorf("rig: no libhadoop.so for %s, and a secured NodeManager needs it", runtime.GOARCH)
	}
	z, err := zip.OpenReader(filepath.Join(dir, nativeJar))
	if err != nil {
		return "", fmt.Errorf("rig: install libhadoop.so: %w", err)
	}
	defer func() { _ = z.Close() }()
	f, err := z.Open("nativelib/Linux-" + arch + "/libhadoop.so")
	if err != nil {
		return "", fmt.Errorf("rig: install libhadoop.so: %w", err)
	}
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("rig: install libhadoop.so: %w", err)
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != want {
		return "", fmt.Errorf("rig: install libhadoop.so: %s holds another one (SHA-256 %s, expected %s)", nativeJar, got, want)
	}
	return dir, writeFile(lib, b, 0o755)
}
