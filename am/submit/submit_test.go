package submit_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a fake ResourceManager and a file system in memory.
type rig struct {
	t    *testing.T
	fake *yarnfake.Cluster
	yarn *client.Client
	fs   fs.FileSystem
	req  submit.Request
	// before is what was there before the submission.
	before []string
}

// readonly refuses to write below a folder.
type readonly struct {
	fs.FileSystem
	below string
	err   error
}

func (r readonly) Mkdir(ctx context.Context, p string, perm uint32) error {
	if fs.Within(r.below, p) {
		return r.err
	}
	return r.FileSystem.Mkdir(ctx, p, perm)
}

func (r readonly) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	if fs.Within(r.below, p) {
		return nil, r.err
	}
	return r.FileSystem.Create(ctx, p, overwrite)
}

// Remove looks at permissions first, as HDFS does, also when there is nothing.
func (r readonly) Remove(ctx context.Context, p string, recursive bool) error {
	if fs.Within(r.below, p) {
		return r.err
	}
	return r.FileSystem.Remove(ctx, p, recursive)
}

func newRig(t *testing.T, opts ...yarnfake.Option) *rig {
	t.Helper()
	r := &rig{t: t, fs: mem.New("nn")}
	var err error
	if r.fake, err = yarnfake.Start(append([]yarnfake.Option{yarnfake.WithQueues("default", "streaming")}, opts...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	if r.yarn, err = client.New(r.fake.Conf()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.yarn.Close() })
	lib := t.TempDir()
	for _, n := range []string{am.MasterBinary, am.TaskManagerBinary, "job"} {
		if err := os.WriteFile(filepath.Join(lib, n), []byte(n+" program"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg := &fs.Registry{}
	reg.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return r.fs, nil })
	r.req = submit.Request{
		YARN: r.yarn, FS: reg, Hadoop: conf.FromMap(map[string]string{"fs.defaultFS": "mem://nn"}), Config: config.Configuration{}, User: "ann",
		Artifact: filepath.Join(lib, "job"), Args: []string{"--in", "orders"}, LibDir: lib, Logger: zerolog.Nop(),
	}
	return r
}

func (r *rig) files() []string {
	var out []string
	var walk func(dir string)
	walk = func(dir string) {
		list, err := r.fs.List(r.t.Context(), dir)
		if err != nil {
			return
		}
		for _, i := range list {
			out = append(out, i.Path)
			if i.IsDir {
				walk(i.Path)
			}
		}
	}
	walk("/")
	return out
}

func TestSubmission(t *testing.T) {
	var seen yarnfake.Launch
	started := make(chan struct{})
	r := newRig(t, yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		seen = l
		close(started)
		return yarnfake.Idle(ctx, l)
	}))
	r.req.Config = config.Configuration{"yarn.application.queue": "streaming", "yarn.tags": "a,B", "yarn.application.name": "orders", "kafka.sasl.password": "hunter22", "yarn.appmaster.vcores": "1"}
	var phases []string
	r.req.OnPhase = func(p submit.Phase) { phases = append(phases, p.Name) }
	res, err := submit.Submit(t.Context(), r.req)
	if err != nil {
		t.Fatal(err)
	}
	<-started
	if strings.Join(phases, " ") != "check stage submit" || len(res.Phases) != 3 || res.Name != "orders" || len(res.JobID) != 32 {
		t.Errorf("%v, %+v", phases, res)
	}
	rep, err := r.yarn.Report(t.Context(), res.ID)
	if err != nil {
		t.Fatal(err)
	}
	if rep.GetName() != "orders" || rep.GetQueue() != "streaming" || rep.GetApplicationType() != "Thalweg" || strings.Join(rep.GetApplicationTags(), " ") != "a b" {
		t.Errorf("%v", rep)
	}
	// What is secret is in the credentials and nowhere else.
	a, err := container.FromCredentials(seen.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	if a.JobID != res.JobID || a.ID != res.ID.String() || strings.Join(a.Args, " ") != "--in orders" || a.Token == "" || a.Config["kafka.sasl.password"] != "hunter22" {
		t.Errorf("%+v", a)
	}
	if a.HA != res.Staging+"/ha" || a.Config["execution.checkpointing.dir"] != "mem://nn/user/ann/.thalweg/ckp" {
		t.Errorf("HA %s, checkpoints %s", a.HA, a.Config["execution.checkpointing.dir"])
	}
	for _, kv := range seen.Context.GetEnvironment() {
		if strings.Contains(kv.GetValue(), "hunter22") || strings.Contains(kv.GetValue(), a.Token) {
			t.Errorf("a secret in the environment: %s", kv.GetKey())
		}
	}
	if cmd := strings.Join(seen.Context.GetCommand(), " "); !strings.Contains(cmd, "exec ./thalweg-appmaster 1><LOG_DIR>/jobmanager.out 2><LOG_DIR>/jobmanager.err;") || strings.ContainsAny(cmd, "$\"`\\") {
		t.Errorf("command %q", cmd)
	}
	if n := len(seen.Context.GetLocalResources()); n != 1 {
		t.Errorf("%d local resources, want the master's program alone", n)
	}
	if v := seen.Context.GetLocalResources()[0].GetValue().GetVisibility(); v != yarnpb.LocalResourceVisibilityProto_PUBLIC {
		t.Errorf("visibility %s", v)
	}
	env := map[string]string{}
	for _, kv := range seen.Context.GetEnvironment() {
		env[kv.GetKey()] = kv.GetValue()
	}
	if env["GOMEMLIMIT"] == "" || env["GOMAXPROCS"] != "1" {
		t.Errorf("environment %v", env)
	}
}

// Each fault is one line that names what, where and what to do, and leaves nothing behind.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		conf   config.Configuration
		change func(r *rig)
		want   []string
	}{
		"queue":            {conf: config.Configuration{"yarn.application.queue": "nowhere"}, want: []string{`"nowhere" does not exist`, "yarn.application.queue"}},
		"master size":      {conf: config.Configuration{"jobmanager.memory.process.size": "64gb"}, want: []string{"application master", "65536 MiB", "8192 MiB", "jobmanager.memory.process.size"}},
		"worker size":      {conf: config.Configuration{"taskmanager.memory.process.size": "64gb"}, want: []string{"TaskManager", "taskmanager.memory.process.size"}},
		"worker cores":     {conf: config.Configuration{"taskmanager.numberOfTaskSlots": "99"}, want: []string{"99 vcores", "taskmanager.numberOfTaskSlots"}},
		"too small":        {conf: config.Configuration{"taskmanager.memory.process.size": "128mb", "state.backend.type": "pebble", "taskmanager.memory.managed.fraction": "0.9"}, want: []string{"taskmanager.memory.process.size"}},
		"staging URI":      {conf: config.Configuration{"yarn.staging-directory": "mem://nn"}, want: []string{"yarn.staging-directory", "no folder"}},
		"staging scheme":   {conf: config.Configuration{"yarn.staging-directory": "ftp://x/y"}, want: []string{"ftp"}},
		"checkpoints here": {conf: config.Configuration{"execution.checkpointing.dir": "file:///tmp/x"}, want: []string{"execution.checkpointing.dir = file:///tmp/x", "local disk", "mem://nn/tmp/x"}},
		"savepoints here":  {conf: config.Configuration{"execution.checkpointing.savepoint-dir": "file:///tmp/x"}, want: []string{"execution.checkpointing.savepoint-dir", "local disk"}},
		"savepoints there": {conf: config.Configuration{"execution.checkpointing.savepoint-dir": "s3://b/x"}, want: []string{"execution.checkpointing.savepoint-dir = s3://b/x", "no file system for this scheme"}},
		"HA here":          {conf: config.Configuration{"high-availability.storageDir": "file:///tmp/x"}, want: []string{"high-availability.storageDir", "local disk"}},
		"staging here":     {conf: config.Configuration{"yarn.staging-directory": "file:///tmp/x"}, want: []string{"yarn.staging-directory", "local disk"}},
		"savepoint here":   {conf: config.Configuration{"execution.state-recovery.path": "file:///tmp/x"}, want: []string{"execution.state-recovery.path", "local disk"}},
		"savepoint scheme": {conf: config.Configuration{"execution.state-recovery.path": "s3://b/x"}, want: []string{"execution.state-recovery.path = s3://b/x"}},
		"no savepoint":     {conf: config.Configuration{"execution.state-recovery.path": "/sp/none"}, want: []string{"execution.state-recovery.path", "mem://nn/sp/none", "no checkpoint or savepoint there"}},
		"program": {change: func(r *rig) { _ = os.Remove(filepath.Join(r.req.LibDir, am.TaskManagerBinary)) },
			want: []string{am.TaskManagerBinary, "THALWEG_LIB_DIR"}},
		"staging": {change: func(r *rig) { r.fs = readonly{r.fs, "/user", iofs.ErrPermission} }, want: []string{"user ann may not write", "mem://nn/user/ann/.thalweg", "yarn.staging-directory"}},
		"checkpoints": {conf: config.Configuration{"execution.checkpointing.dir": "mem://nn/ckp"}, change: func(r *rig) { r.fs = readonly{r.fs, "/ckp", iofs.ErrPermission} },
			want: []string{"checkpoint folder mem://nn/ckp", "user ann", "execution.checkpointing.dir"}},
		"others' staging": {change: func(r *rig) {
			_ = r.fs.Mkdir(r.t.Context(), "/user/ann/.thalweg/lib/"+time.Now().UTC().Format("2006-01"), 0o755)
			r.before = r.files()
			r.fs = readonly{r.fs, "/user", iofs.ErrPermission}
		}, want: []string{"user ann may not write", "yarn.staging-directory"}},
		"NameNode":  {change: func(r *rig) { r.fs = readonly{r.fs, "/user", fs.ErrUnavailable} }, want: []string{"does not answer", "fs.defaultFS", "NameNode"}},
		"safe mode": {change: func(r *rig) { r.fs = readonly{r.fs, "/user", fs.ErrSafeMode} }, want: []string{"took no writes", "-safemode get"}},
		"refused": {change: func(r *rig) {
			r.fake.Refuse("submitApplication", &ipc.RemoteError{Class: string(yarn.ErrYarn), Message: "Maximum applications exceeded"})
		}, want: []string{"Maximum applications exceeded"}},
		"tokens": {change: func(r *rig) {
			r.req.Tokens = func(context.Context, ...string) (*token.Credentials, error) {
				return nil, errors.New("no ticket: run kinit")
			}
		}, want: []string{"kinit"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			maps.Copy(r.req.Config, c.conf)
			if c.change != nil {
				c.change(r)
			}
			res, err := submit.Submit(t.Context(), r.req)
			if err == nil {
				t.Fatalf("accepted: %+v", res)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			var key *submit.ConfigError
			if len(c.want) > 0 && strings.Contains(c.want[0], "execution.") && (!errors.As(err, &key) || !strings.Contains(c.want[0], key.Key)) {
				t.Errorf("%T %v: want a *ConfigError that names %s", err, err, c.want[0])
			}
			if strings.Contains(err.Error(), "taken back") {
				t.Errorf("nothing was begun: %q", err)
			}
			if left := r.files(); !slices.Equal(left, r.before) {
				t.Errorf("left behind: %v", left)
			}
			for _, id := range r.fake.Applications() {
				rep, err := r.yarn.Report(t.Context(), id)
				if err == nil && rep.GetYarnApplicationState() != yarnpb.YarnApplicationStateProto_KILLED && rep.GetYarnApplicationState() != yarnpb.YarnApplicationStateProto_FAILED && rep.GetYarnApplicationState() != yarnpb.YarnApplicationStateProto_NEW {
					t.Errorf("application %s is %s", id, rep.GetYarnApplicationState())
				}
			}
		})
	}
}

func TestResourceManagerAwayIsBounded(t *testing.T) {
	r := newRig(t)
	r.fake.StopResourceManager()
	y, err := client.New(r.fake.Conf(), client.WithMaxWait(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close() //nolint:errcheck // end of the test
	r.req.YARN = y
	_, err = submit.Submit(t.Context(), r.req)
	var u *client.UnreachableError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "yarn.resourcemanager.address") {
		t.Errorf("got %v", err)
	}
	if left := r.files(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInterruptedSubmissionLeavesNothing(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.req.OnPhase = func(p submit.Phase) {
		if p.Name == "stage" {
			cancel()
		}
	}
	if _, err := submit.Submit(ctx, r.req); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := r.files(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Folders of applications that were killed from outside, and of those that were never submitted, are removed by a later submission.
// What another cluster may run stays.
func TestSweep(t *testing.T) {
	r := newRig(t)
	res, err := submit.Submit(t.Context(), r.req)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.yarn.Kill(t.Context(), res.ID, ""); err != nil {
		t.Fatal(err)
	}
	foreign := "/user/ann/.thalweg/application_5_0005"
	if err := r.fs.Mkdir(t.Context(), foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	// A client that was killed before it submitted, and one that may be about to.
	lost := fmt.Sprintf("/user/ann/.thalweg/application_%d_9999", res.ID.ClusterTimestamp)
	going := fmt.Sprintf("/user/ann/.thalweg/application_%d_9998", res.ID.ClusterTimestamp)
	anew := "/user/ann/.thalweg/application_5_0006" // killed as well, and the ResourceManager was started anew
	for _, dir := range []string{anew + "/lib-2026-11", foreign + "/lib-2026-11", foreign + "/ha", lost + "/lib-2026-11", going} {
		if err := r.fs.Mkdir(t.Context(), dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if left := r.files(); !slices.Contains(left, "/user/ann/.thalweg/"+res.ID.String()+"/submitted") { // its high-availability data may be elsewhere
		t.Errorf("nothing says that it was submitted: %v", left)
	}
	queued := "/user/ann/.thalweg/application_5_0007"
	if err := r.fs.Mkdir(t.Context(), queued+"/submitted", 0o700); err != nil {
		t.Fatal(err)
	}
	old := aged{r.fs, map[string]time.Duration{foreign: 1000 * time.Hour, queued: 1000 * time.Hour, anew: 25 * time.Hour, lost: 25 * time.Hour}}
	r.fs = old
	if _, err := submit.Submit(t.Context(), r.req); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) { // a submission does not wait for its sweep: the next one may finish it
		if left := r.files(); !slices.Contains(left, "/user/ann/.thalweg/"+res.ID.String()) && !slices.Contains(left, lost) && !slices.Contains(left, anew) {
			break
		}
		if _, err := submit.Submit(t.Context(), r.req); err != nil {
			t.Fatal(err)
		}
	}
	left := r.files()
	if slices.Contains(left, "/user/ann/.thalweg/"+res.ID.String()) || slices.Contains(left, lost) || slices.Contains(left, anew) || !slices.Contains(left, foreign+"/lib-2026-11") || !slices.Contains(left, foreign+"/ha") || !slices.Contains(left, going) || !slices.Contains(left, queued) {
		t.Errorf("files: %v", left)
	}
}

// aged shows every folder as an hour old, or as old as it says.
type aged struct {
	fs.FileSystem
	ages map[string]time.Duration
}

func (a aged) List(ctx context.Context, dir string) ([]fs.Info, error) {
	list, err := a.FileSystem.List(ctx, dir)
	for i := range list {
		age := time.Hour
		if d, ok := a.ages[list[i].Path]; ok {
			age = d
		}
		list[i].ModTime = time.Now().Add(-age)
	}
	return list, err
}

func TestRoot(t *testing.T) {
	h := conf.FromMap(map[string]string{"fs.defaultFS": "hdfs://nn:8020/"})
	for in, want := range map[string]string{
		"": "hdfs://nn:8020/user/ann/.thalweg", "/apps/t": "hdfs://nn:8020/apps/t", "hdfs://other/x": "hdfs://other/x",
	} {
		c := config.Configuration{}
		if in != "" {
			c["yarn.staging-directory"] = in
		}
		if got, err := submit.Root(c, h, "ann"); err != nil || got != want {
			t.Errorf("Root(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
}

// A folder means the same in every container, or is refused.
func TestFolder(t *testing.T) {
	hdfs, here := conf.FromMap(map[string]string{"fs.defaultFS": "hdfs://nn:8020/"}), conf.FromMap(map[string]string{"fs.defaultFS": "file:///"})
	for _, c := range []struct {
		hadoop   *conf.Configuration
		in, want string // "" for refused
	}{
		{hdfs, "hdfs:///x/y", "hdfs://nn:8020/x/y"}, {hdfs, "hdfs:/x", "hdfs://nn:8020/x"}, {hdfs, "hdfs://a/x", "hdfs://a/x"}, {hdfs, "/x", "hdfs://nn:8020/x"}, {hdfs, "s3://b/x", "s3://b/x"},
		{hdfs, "file:///x", ""}, {hdfs, "file:/x", ""}, {hdfs, "x", ""}, {hdfs, "./x", ""}, {hdfs, "-Dx=y", ""}, {hdfs, ":", ""}, {hdfs, "hdfs:x", ""}, {hdfs, "hdfs://nn:8020", ""},
		{here, "/x", "file:///x"}, {here, "file:///x", "file:///x"}, {here, "hdfs://a/x", "hdfs://a/x"},
	} {
		got, err := submit.Folder("some.key", c.in, c.hadoop)
		if got != c.want {
			t.Errorf("Folder(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
		var key *submit.ConfigError
		if c.want == "" && (!errors.As(err, &key) || !strings.Contains(err.Error(), "some.key = ") || strings.Contains(err.Error(), "\n")) {
			t.Errorf("Folder(%q): %v", c.in, err)
		}
	}
}

// counted ends the context at its n-th operation, after that has had its effect or instead of it.
type counted struct {
	fs.FileSystem
	n      *atomic.Int64
	end    context.CancelFunc
	before bool
}

func (c counted) do(f func() error) error {
	n := c.n.Add(-1)
	if n == 0 && c.before {
		c.end()
		return context.Canceled
	}
	err := f()
	if n == 0 {
		c.end()
		return context.Canceled
	}
	return err
}

func (c counted) Mkdir(ctx context.Context, p string, perm uint32) error {
	return c.do(func() error { return c.FileSystem.Mkdir(ctx, p, perm) })
}

func (c counted) Chmod(ctx context.Context, p string, perm uint32) error {
	return c.do(func() error { return c.FileSystem.Chmod(ctx, p, perm) })
}

func (c counted) Rename(ctx context.Context, from, to string) error {
	return c.do(func() error { return c.FileSystem.Rename(ctx, from, to) })
}

func (c counted) Stat(ctx context.Context, p string) (info fs.Info, err error) {
	return info, c.do(func() error { info, err = c.FileSystem.Stat(ctx, p); return err })
}

func (c counted) Create(ctx context.Context, p string, overwrite bool) (w fs.Writer, err error) {
	return w, c.do(func() error { w, err = c.FileSystem.Create(ctx, p, overwrite); return err })
}

// Wherever a submission ends, nothing of it is left.
func TestSubmissionInterruptedAnywhereLeavesNothing(t *testing.T) {
	for _, before := range []bool{true, false} {
		for k := int64(1); ; k++ {
			r := newRig(t)
			r.req.Config["execution.checkpointing.dir"] = "/ckp/orders"
			ctx, cancel := context.WithCancel(t.Context())
			var n atomic.Int64
			n.Store(k)
			under := r.fs
			r.fs = counted{under, &n, cancel, before}
			_, err := submit.Submit(ctx, r.req)
			over := ctx.Err() == nil
			cancel()
			r.fs = under
			if over {
				if err != nil || k < 10 {
					t.Errorf("operation %d: %v", k, err)
				}
				break
			}
			if err == nil { // the last thing that happened was the sweep's
				continue
			}
			if left := r.files(); len(left) > 0 {
				t.Errorf("ended at operation %d (before: %v) by %v; left behind: %v", k, before, err, left)
			}
		}
	}
}

func TestStartsFromASavepoint(t *testing.T) {
	r := newRig(t)
	st := storage.New(r.fs, "/sp", graph.JobID{ID: graph.NewID()})
	dir, _, err := st.WriteMetadata(t.Context(), st.CheckpointDir(1), metadata.Checkpoint{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := strings.TrimSuffix(strings.TrimPrefix(dir, "mem://nn"), "/_metadata")
	r.req.Config["execution.state-recovery.path"] = p // of the default file system
	if _, err := submit.Submit(t.Context(), r.req); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	before := r.files()
	for _, c := range []struct {
		want   string
		change func() error
	}{
		{"truncated", func() error { return fs.WriteFile(t.Context(), r.fs, p+"/_metadata", []byte("TH"), true) }},
		{"has no _metadata", func() error { return r.fs.Remove(t.Context(), p+"/_metadata", false) }},
		{"no checkpoint or savepoint there", func() error { return r.fs.Remove(t.Context(), p, true) }},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		_, err := submit.Submit(t.Context(), r.req)
		var key *submit.ConfigError
		if !errors.As(err, &key) || key.Key != "execution.state-recovery.path" || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mem://nn"+p) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %q", err, c.want)
		}
		for _, left := range r.files() {
			if !slices.Contains(before, left) {
				t.Errorf("left behind: %s", left)
			}
		}
	}
}

// A claimed folder that another application has: refused while that one may live, taken over when it was killed.
func TestClaimsWhatAKilledApplicationHad(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	former, err := submit.Submit(ctx, r.req)
	if err != nil {
		t.Fatal(err)
	}
	job := graph.JobID{ID: graph.NewID()}
	st := storage.New(r.fs, "/ckp", job)
	if _, err := st.Own(ctx, storage.Owner{Job: job, Name: "orders", By: former.ID.String()}); err != nil {
		t.Fatal(err)
	}
	dir, _, err := st.WriteMetadata(ctx, st.CheckpointDir(1), metadata.Checkpoint{ID: 1, JobID: job})
	if err != nil {
		t.Fatal(err)
	}
	r.req.Config["execution.state-recovery.path"], r.req.Config["execution.state-recovery.claim-mode"] = dir, "claim"
	_, err = submit.Submit(ctx, r.req)
	var key *submit.ConfigError
	if !errors.As(err, &key) || !strings.Contains(err.Error(), former.ID.String()) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("beside an application that lives: %v", err)
	}
	if err := r.yarn.Kill(ctx, former.ID, "by an administrator"); err != nil {
		t.Fatal(err)
	}
	if _, err := submit.Submit(ctx, r.req); err != nil {
		t.Errorf("after it was killed: %v", err)
	}
	if err := storage.OwnerOf(ctx, r.fs, "/ckp/"+job.String()); err != nil {
		t.Errorf("the mark is left: %v", err)
	}
}
