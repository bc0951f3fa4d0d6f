package ha

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
)

// An attempt that comes up while the NameNode is down takes over when it is back, in whatever step the outage meets it.
func TestPatientStoreWaitsForTheFileSystem(t *testing.T) {
	below := mem.New("ha")
	first := NewFileStore(below, "/ha/app", zerolog.Nop())
	acquire(t, first, 1)
	must(t, first.PutJob(t.Context(), Job{ID: jobID(1), Name: "totals", Data: []byte("graph")}))
	open(t, first, jobID(1), Pointer{}, 1)

	f := fault.New(below)
	s := Patient(NewFileStore(f, "/ha/app", zerolog.Nop()), zerolog.Nop())
	down := func() { f.Set(fault.When(fault.First(1, fault.Any("")), fault.Fail(fs.ErrUnavailable))) }
	down()
	acquire(t, s, 2)
	down()
	must(t, s.PublishLeader(t.Context(), Leader{Address: "nm1:1"}))
	down()
	jobs, err := s.Jobs(t.Context())
	must(t, err)
	if len(jobs) != 1 {
		t.Errorf("jobs %v", jobs)
	}
	down()
	_, _, err = s.OpenJob(t.Context(), jobID(1))
	must(t, err)
	down()
	must(t, s.CheckEpoch(t.Context()))
	down()
	if _, err = s.Results(t.Context()); err != nil {
		t.Error(err)
	}
	down()
	must(t, s.PutJob(t.Context(), Job{ID: jobID(2), Name: "more"}))
}

func TestAwaitEndsWithWhatDoesNotPassAndWithItsContext(t *testing.T) {
	final := errors.New("permission denied")
	if err := Await(t.Context(), zerolog.Nop(), "x", func(context.Context) error { return final }); !errors.Is(err, final) {
		t.Error(err)
	}
	replaced := errors.New("another attempt")
	ctx, cancel := context.WithCancelCause(t.Context())
	down := errors.Join(fs.ErrUnavailable, errors.New("nn:8020 refused"))
	err := Await(ctx, zerolog.Nop(), "x", func(context.Context) error {
		cancel(replaced)
		return down
	})
	if !errors.Is(err, replaced) || !errors.Is(err, fs.ErrUnavailable) || !strings.Contains(err.Error(), "nn:8020") {
		t.Errorf("%v, want the cause of the end and the last failure", err)
	}
}
