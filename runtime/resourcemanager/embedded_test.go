package resourcemanager_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
)

// In one process, TaskManagers that cannot start are not replaced without end: the cluster fails with the reason.
func TestEmbeddedTaskManagersThatCannotStart(t *testing.T) {
	var starts atomic.Int32
	d := resourcemanager.NewEmbedded(func(context.Context, resourcemanager.WorkerID, resourcemanager.WorkerSpec) error {
		starts.Add(1)
		return errors.New("no folder is usable")
	})
	fatal := make(chan error, 1)
	m := resourcemanager.New(resourcemanager.Options{Epoch: 1, Driver: d, Spec: resourcemanager.WorkerSpec{Slots: 1}, Logger: zerolog.Nop(), Config: config.Configuration{},
		OnFatal: func(err error) { fatal <- err }})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.RegisterJob("job", &ear{})
	m.Declare("job", 1)
	if err := <-fatal; !strings.Contains(err.Error(), "no folder is usable") {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if n := starts.Load(); n != 3 {
		t.Errorf("%d TaskManagers were started, want 3", n)
	}
}
