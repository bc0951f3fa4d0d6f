package submit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// local writes files here, by path and mode.
func local(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("content of "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// put writes a file there that everybody can read, if it is public.
func (r *rig) put(p string, public bool) {
	r.t.Helper()
	if err := fs.WriteFile(r.t.Context(), r.fs, p, []byte("content of "+p), true); err != nil {
		r.t.Fatal(err)
	}
	mode := uint32(0o600)
	if public {
		mode = 0o644
		for dir := filepath.Dir(p); dir != "/"; dir = filepath.Dir(dir) {
			if err := r.fs.Chmod(r.t.Context(), dir, 0o755); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := r.fs.Chmod(r.t.Context(), p, mode); err != nil {
		r.t.Fatal(err)
	}
}

// submitted returns the local resources of an application's master (name, kind, visibility and where from), and what it is told.
func submitted(t *testing.T, conf config.Configuration, before func(r *rig)) (resources []string, app *container.Application) {
	t.Helper()
	started := make(chan yarnfake.Launch, 1)
	r := newRig(t, yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		started <- l
		return yarnfake.Idle(ctx, l)
	}))
	before(r)
	for k, v := range conf {
		r.req.Config[k] = v
	}
	if _, err := submit.Submit(t.Context(), r.req); err != nil {
		t.Fatal(err)
	}
	l := <-started
	for _, x := range l.Context.GetLocalResources() {
		from := x.GetValue().GetResource().GetFile()
		if i := strings.LastIndexByte(from, '/'); strings.Contains(from, "/lib/") {
			from = "lib" + from[i+65:]
		}
		resources = append(resources, fmt.Sprintf("%s %s %s %s", x.GetKey(), x.GetValue().GetType(), x.GetValue().GetVisibility(), strings.TrimPrefix(from, "/user/ann/.thalweg/"+l.Container.Attempt.App.String()+"/")))
	}
	slices.Sort(resources)
	app, err := container.FromCredentials(l.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	return resources, app
}

// Files, folders and archives, here and on the cluster, are in the containers' folders under their names: by content and shared where everybody may
// read them, in the application's own folder where not.
func TestShippedFiles(t *testing.T) {
	dir := local(t, map[string]os.FileMode{"app.yaml": 0o644, "rules/a.csv": 0o644, "rules/deep/b.csv": 0o644, "secret.key": 0o600, "model.tar.gz": 0o644})
	got, app := submitted(t, config.Configuration{
		"yarn.ship-files":    dir + "/app.yaml;file://" + dir + "/rules;" + dir + "/secret.key;mem://nn/shared/geo.db;mem://nn/own",
		"yarn.ship-archives": dir + "/model.tar.gz;mem://nn/shared/more.zip",
	}, func(r *rig) {
		r.put("/shared/geo.db", true)
		r.put("/shared/more.zip", true)
		r.put("/own/x/y.txt", false)
	})
	want := []string{
		"app.yaml FILE PUBLIC lib-app.yaml", "geo.db FILE PUBLIC /shared/geo.db", "model.tar.gz ARCHIVE PUBLIC lib-model.tar.gz", "more.zip ARCHIVE PUBLIC /shared/more.zip",
		"own/x/y.txt FILE PRIVATE /own/x/y.txt", "rules/a.csv FILE PUBLIC lib-a.csv", "rules/deep/b.csv FILE PUBLIC lib-b.csv", "secret.key FILE PRIVATE ship/secret.key",
		am.MasterBinary + " FILE PUBLIC lib-" + am.MasterBinary,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the master gets\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	lc, err := am.TaskManagerLaunch(app, &token.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(lc.GetLocalResources()); n != len(want) {
		t.Errorf("a TaskManager gets %d files, want %d", n, len(want))
	}
}

// What is provided on the cluster is used in place of the client's own programs, which need not be there; other files go along, whatever they are.
func TestProvidedLibraries(t *testing.T) {
	got, app := submitted(t, config.Configuration{"yarn.provided.lib.dirs": "mem://nn/opt/thalweg;mem://nn/opt/data"}, func(r *rig) {
		for _, p := range []string{"/opt/thalweg/" + am.MasterBinary, "/opt/thalweg/" + am.TaskManagerBinary, "/opt/thalweg/README.md", "/opt/data/deep/table.csv"} {
			r.put(p, true)
		}
		for _, n := range []string{am.MasterBinary, am.TaskManagerBinary} {
			if err := os.Remove(filepath.Join(r.req.LibDir, n)); err != nil {
				t.Fatal(err)
			}
		}
	})
	want := []string{"README.md FILE PUBLIC /opt/thalweg/README.md", "deep/table.csv FILE PUBLIC /opt/data/deep/table.csv", am.MasterBinary + " FILE PUBLIC /opt/thalweg/" + am.MasterBinary}
	if !slices.Equal(got, want) {
		t.Errorf("the master gets\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if app.TaskManager.URI != "mem://nn/opt/thalweg/"+am.TaskManagerBinary || !strings.HasSuffix(app.Artifact.URI, "-job") {
		t.Errorf("TaskManager %s, job %s", app.TaskManager.URI, app.Artifact.URI)
	}
}

// What cannot be sent along is one line that names the key and the file, and leaves nothing behind.
func TestShippingIsRefused(t *testing.T) {
	dir := local(t, map[string]os.FileMode{"a/x.txt": 0o644, "b/x.txt": 0o644, "a/it's": 0o644, "a/" + am.MasterBinary: 0o644})
	for name, c := range map[string]struct{ key, value, want string }{
		"missing here":     {"yarn.ship-files", dir + "/none", dir + "/none: no such file"},
		"missing there":    {"yarn.ship-files", "mem://nn/none", "mem://nn/none"},
		"twice":            {"yarn.ship-files", dir + "/a/x.txt;" + dir + "/b/x.txt", "would both be x.txt"},
		"quotes":           {"yarn.ship-files", dir + "/a/it's", "may not have quotes"},
		"our own":          {"yarn.ship-files", dir + "/a/" + am.MasterBinary, "another " + am.MasterBinary},
		"no archive":       {"yarn.ship-archives", dir + "/a/x.txt", "not an archive that YARN unpacks"},
		"folder":           {"yarn.ship-archives", dir + "/a", "not an archive that YARN unpacks"},
		"provided file":    {"yarn.provided.lib.dirs", "mem://nn/opt/private", "is not a folder"},
		"provided private": {"yarn.provided.lib.dirs", "mem://nn/opt", "not readable by everybody"},
		"half":             {"yarn.provided.lib.dirs", "mem://nn/half", "belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.put("/opt/private", false)
			r.put("/half/"+am.MasterBinary, true)
			r.before = r.files()
			r.req.Config[c.key] = c.value
			_, err := submit.Submit(t.Context(), r.req)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %s, %q", err, c.key, c.want)
			}
			if got := r.files(); !slices.Equal(got, r.before) {
				t.Errorf("left behind: %v, before %v", got, r.before)
			}
		})
	}
}

// External resources and node labels that the cluster does not have are refused, with what it has.
func TestResourcesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		conf config.Configuration
		want string
	}{
		"amount missing": {config.Configuration{"external-resources": "gpu"}, "external-resource.gpu.amount is not set"},
		"no number":      {config.Configuration{"external-resources": "gpu", "external-resource.gpu.amount": "one"}, `external-resource.gpu.amount = "one": want a whole number`},
		"not listed":     {config.Configuration{"external-resource.gpu.amount": "1"}, "external-resources does not list gpu"},
		"unknown":        {config.Configuration{"external-resources": "gpu", "external-resource.gpu.amount": "1", "external-resource.gpu.yarn.config-key": "yarn.io/gpu"}, `the cluster has no resource "yarn.io/gpu"`},
		"label":          {config.Configuration{"yarn.taskmanager.node-label": "ssd"}, `may not use nodes with the label "ssd" (yarn.taskmanager.node-label)`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for k, v := range c.conf {
				r.req.Config[k] = v
			}
			if _, err := submit.Submit(t.Context(), r.req); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}
