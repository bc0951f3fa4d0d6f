package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// table prints one line for each suite on each kind of cluster, and below it what failed and what cannot be.
func table(out io.Writer, all []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var errs [3]error
	_, errs[0] = fmt.Fprintln(w, "\ncluster\tsuite\tpassed\tfailed\tnot possible\ttime")
	var below string
	for _, r := range all {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", r.Cluster, r.Suite, r.Passed, len(r.Failed), len(r.Impossible), r.took()); err != nil {
			errs[1] = err
		}
		below += list("failed", r, r.Failed) + list("not possible", r, r.Impossible)
	}
	errs[2] = w.Flush()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("matrix: print: %w", err)
		}
	}
	_, err := fmt.Fprint(out, "\n"+below)
	return err
}

func list(what string, r result, tests map[string]string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		text += fmt.Sprintf("%s on %s: %s %s: %.300s\n", what, r.Cluster, r.Suite, name, tests[name])
	}
	return text
}
