package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/yarnrpc/yarntest"
)

var binDir = flag.String("bin", "../../bin", "folder with the built binaries")

// What TestMain prepares.
var (
	cluster *rig.Cluster
	bin     string // folder of the binaries, absolute
	totals  string // testdata/programs/totals, built
	batch   string // testdata/programs/batch, built
	plain   string // testdata/programs/plain, built
	foreign string // the same for linux/arm64
)

func TestMain(m *testing.M) {
	yarntest.RunMaster() // this binary is also an application master
	flag.DurationVar(&patience, "patience", patience, "how long a step of a job may take; more on a machine that is busy with other things")
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if bin, err = filepath.Abs(*binDir); err != nil {
		return 1, err
	}
	if _, err := os.Stat(filepath.Join(bin, "thalweg")); err != nil {
		return 1, fmt.Errorf("no binaries: %w; run make build first", err)
	}
	tmp, err := os.MkdirTemp("", "thalweg-integration-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a temporary folder
	totals, batch = filepath.Join(tmp, "totals"), filepath.Join(tmp, "batch")
	plain, foreign = filepath.Join(tmp, "plain"), filepath.Join(tmp, "foreign")
	for _, b := range []struct{ out, pkg, arch string }{{totals, "totals", "amd64"}, {batch, "batch", "amd64"}, {plain, "plain", "amd64"}, {foreign, "plain", "arm64"}} {
		if err := build(ctx, b.out, "./testdata/programs/"+b.pkg, b.arch); err != nil {
			return 1, err
		}
	}
	c, release, err := rig.Shared(ctx, rig.Options{Progress: os.Stderr})
	if err != nil {
		return 1, err
	}
	cluster = c
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if rerr := release(clean); err == nil {
			err = rerr
		}
	}()
	code = m.Run()
	end, endCancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer endCancel()
	if err := leftovers(end); err != nil {
		return max(code, 1), err
	}
	if code != 0 {
		return code, nil
	}
	return 0, goleak.Find(goleak.IgnoreCurrent())
}

// build builds one of the test's programs as a user would.
func build(ctx context.Context, out, pkg, arch string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return nil
}
