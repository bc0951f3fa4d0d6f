package ha

import (
	"errors"
	"testing"
)

// What was required of a job's parallelism is found by the next attempt, and once that has taken it over the one before cannot change it.
func TestRequirementsOutliveAnAttempt(t *testing.T) {
	forEachStore(t, func(t *testing.T, next attempts) {
		ctx := t.Context()
		want := func(s Store, text string) {
			t.Helper()
			got, err := s.Requirements(ctx, jobID(1))
			must(t, err)
			if string(got) != text || (got == nil) != (text == "") {
				t.Fatalf("requirements %q, want %q", got, text)
			}
		}
		first := next()
		acquire(t, first, 1)
		must(t, first.PutJob(ctx, Job{ID: jobID(1)}))
		if err := first.StoreRequirements(ctx, jobID(1), []byte("x")); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("before the job was opened: %v", err)
		}
		open(t, first, jobID(1), Pointer{}, 1)
		want(first, "")
		for _, text := range []string{"one", "two"} {
			must(t, first.StoreRequirements(ctx, jobID(1), []byte(text)))
			want(first, text)
		}
		second := next()
		acquire(t, second, 2)
		_, _, err := second.OpenJob(ctx, jobID(1))
		must(t, err)
		want(second, "two")
		must(t, second.StoreRequirements(ctx, jobID(1), []byte("two")))
		if err := first.StoreRequirements(ctx, jobID(1), []byte("stale")); !errors.Is(err, ErrFenced) {
			t.Errorf("by the old attempt: %v, want ErrFenced", err)
		}
		want(second, "two")
		must(t, second.EndJob(ctx, jobID(1), Result{State: "FINISHED"}))
		want(second, "")
	})
}
