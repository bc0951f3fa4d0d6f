package dispatcher_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// session is an attempt of a session.
func (w *world) session() *master {
	w.t.Helper()
	m := w.attempt()
	m.d.Close()
	m.d = dispatcher.New(dispatcher.Options{Config: w.conf, Resources: m.rm, Store: m.store, FS: w.fs, Launcher: dispatcher.InProcess{Run: w.jobs.RunCoordinator}, Epoch: m.epoch, Session: true, Logger: w.log})
	w.t.Cleanup(m.d.Close)
	return m
}

func (w *world) cancelled(m *master, id graph.JobID) {
	w.t.Helper()
	if err := m.d.Cancel(id); err != nil {
		w.t.Fatal(err)
	}
	if r, err := m.d.Wait(context.Background(), id); err != nil || r.State != scheduler.JobCanceled {
		w.t.Fatalf("%s, %v", r.State, err)
	}
}

// A session shows the last jobs that ended, says that they did, and forgets the others, also in its store.
func TestSessionForgetsEndedJobs(t *testing.T) {
	w := newWorld(t, 3)
	w.conf["jobstore.max-capacity"] = "2"
	m := w.session()
	var ids []graph.JobID
	for range 4 {
		id := w.submit(m)
		w.running(m, id)
		w.cancelled(m, id)
		ids = append(ids, id)
	}
	w.running(m, w.submit(m)) // it is at submissions that jobs are forgotten
	if _, err := m.d.Details(context.Background(), ids[0]); !errors.Is(err, dispatcher.ErrUnknownJob) {
		t.Errorf("the first of four jobs: %v", err)
	}
	if d, err := m.d.Details(context.Background(), ids[3]); err != nil || d.State != scheduler.JobCanceled || len(d.Vertices) != 2 {
		t.Errorf("the last one: %+v, %v", d, err)
	}
	if err := m.d.Cancel(ids[3]); !errors.Is(err, jobmaster.ErrEnded) {
		t.Errorf("cancel of a job that ended: %v", err)
	}
	if _, err := m.d.Trigger(context.Background(), ids[3], jobmaster.TriggerRequest{}); !errors.Is(err, jobmaster.ErrEnded) {
		t.Errorf("checkpoint of a job that ended: %v", err)
	}
	if results, err := m.store.Results(context.Background()); err != nil || len(results) != 2 {
		t.Errorf("%d results are stored, %v", len(results), err)
	}
}

// A job whose stored data is damaged, or no job of this version, does not keep the others of a session from going on, and jobs that ended in the attempt
// before are known.
func TestSessionRecoversWhatItCan(t *testing.T) {
	w := newWorld(t, 6)
	m1 := w.session()
	damaged, foreign, good := w.submit(m1), w.submit(m1), w.submit(m1)
	w.lead(nil)
	m1.close()
	for id, text := range map[graph.JobID]string{damaged: "garbage", foreign: `{"id":"` + foreign.String() + `","name":"foreign","data":"bm9wZQ=="}`} {
		if err := os.WriteFile(filepath.Join(w.dir, "ha", "jobs", id.String(), "job"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m2 := w.session()
	ids, err := m2.d.Recover(context.Background(), nil)
	if err != nil || len(ids) != 1 || ids[0] != good {
		t.Fatalf("recovered %v, %v; want %s", ids, err, good)
	}
	w.running(m2, good)
	if d, err := m2.d.Details(context.Background(), foreign); err != nil || d.State != scheduler.JobFailed || d.Root == nil || !strings.Contains(d.Root.Message, "foreign") {
		t.Errorf("%+v, %v", d, err)
	}
	ended := w.submit(m2)
	w.running(m2, ended)
	w.cancelled(m2, ended)
	w.lead(nil)
	m2.close()
	m3 := w.session()
	if _, err := m3.d.Recover(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if name, known := m3.d.Name(ended); !known || name != jobtest.Graph(2, 3).Name {
		t.Errorf("%q, %v", name, known)
	}
	if d, err := m3.d.Details(context.Background(), ended); err != nil || d.State != scheduler.JobCanceled {
		t.Errorf("%+v, %v", d, err)
	}
	w.running(m3, good)
}
