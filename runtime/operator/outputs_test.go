package operator

import "testing"

// A stream of a side output has the event time of its operator: a window on it fires while the job runs.
func TestSideOutputsHaveEventTime(t *testing.T) {
	ints, err := TypeOf[int]()
	if err != nil {
		t.Fatal(err)
	}
	texts, err := TypeOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	main, late, rest := &sink[int]{}, &sink[string]{}, &sink[string]{}
	out, side, err := Outputs(nil, map[string]Type{"": ints, "late": texts, "rest": texts},
		map[string][]any{"": {Receiver[int](main)}, "late": {Receiver[string](late), Receiver[string](rest)}})
	if err != nil {
		t.Fatal(err)
	}
	r := out.(Receiver[int])
	if err := side["late"].(Receiver[string]).Process("x", Meta{TS: 1}); err != nil {
		t.Fatal(err)
	}
	if err := r.Watermark(7); err != nil {
		t.Fatal(err)
	}
	if got := len(main.got); got != 1 {
		t.Errorf("the main output took %d elements, want a watermark", got)
	}
	for _, s := range []*sink[string]{late, rest} {
		if len(s.got) != 2 {
			t.Errorf("the side output took %v, want a record and a watermark", s.got)
		}
	}
	if side["rest"] == nil || side[""] != nil {
		t.Errorf("side outputs %v", side)
	}
}
