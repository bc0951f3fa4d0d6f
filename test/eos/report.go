package eos

import (
	"fmt"
	"io"
)

// Text writes the verdict for people.
func (v *Verdict) Text(w io.Writer) error {
	word := "OK"
	if !v.OK {
		word = "FAILED"
	}
	if _, err := fmt.Fprintf(w, "%s: %d records in, %d windows expected, %d results read; %d lost, %d repeated, %d wrong, %d without input\n",
		word, v.Records, v.Windows, v.Results, v.Lost, v.Repeated, v.Wrong, v.Unasked); err != nil {
		return err
	}
	for _, c := range v.Checks {
		state := "ok"
		switch {
		case c.Faults > 0:
			state = fmt.Sprintf("FAILED, %d faults", c.Faults)
		case !c.Checked:
			state = "not checked"
		}
		note := ""
		if c.Note != "" {
			note = " (" + c.Note + ")"
		}
		if _, err := fmt.Fprintf(w, "  %2d %s: %s%s\n", c.Number, c.Name, state, note); err != nil {
			return err
		}
		for _, d := range c.Details {
			if _, err := fmt.Fprintf(w, "       %s\n", d); err != nil {
				return err
			}
		}
	}
	return nil
}
