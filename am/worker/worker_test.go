package worker

import (
	"slices"
	"testing"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/config"
)

// Local state is in folders that the NodeManager removes when the container has ended, however it has: state of gigabytes must not stay on the
// node's disks for each container that was lost.
func TestLocalStateIsBelowTheContainersFolders(t *testing.T) {
	c := &container.Container{ID: "container_1_0001_01_000002", LocalDirs: []string{"/a/appcache/application_1_0001", "/b/appcache/application_1_0001"}, App: &container.Application{Config: config.Configuration{}}}
	want := []string{"/a/appcache/application_1_0001/container_1_0001_01_000002", "/b/appcache/application_1_0001/container_1_0001_01_000002"}
	if got := localDirs(c); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c.App.Config["io.tmp.dirs"] = "/own"
	if got := localDirs(c); !slices.Equal(got, []string{"/own"}) {
		t.Errorf("with io.tmp.dirs: %v", got)
	}
}
