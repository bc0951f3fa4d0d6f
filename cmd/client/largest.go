package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/checkpoint/inspect"
)

func (c *cli) stateLargestCommand() *cobra.Command {
	var top int
	cmd := &cobra.Command{
		Use: "largest snapshot [operator [state]]", Short: "print the keys that take most", Args: named("a snapshot", "an operator", "a state"),
		Long: "Print the largest entries of each keyed state, with the bytes of their key and value as they are stored. A running job has the size of the\n" +
			"largest entry, of each state, among its metrics (state.NAME.largest-entry-size)." + whichSnapshot,
		Example: "  thalweg state largest hdfs:///checkpoints/JOB/chk-42\n  thalweg state largest -o json --top 100 SAVEPOINT customer-totals | jq .key",
		RunE: func(cmd *cobra.Command, args []string) error {
			if top < 1 {
				return &usageError{fmt.Errorf("--top %d: want a number of entries", top)}
			}
			all, done, err := c.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer done()
			states, err := all[0].Find(at(args, 1), at(args, 2))
			if err != nil {
				return &usageError{err}
			}
			shown := 0
			for _, st := range states {
				largest, err := all[0].Largest(cmd.Context(), st, top)
				if err != nil {
					return err
				}
				shown += len(largest)
				if err := c.printLargest(st, largest); err != nil {
					return err
				}
			}
			if shown == 0 && !c.json() {
				c.printf("No entry.\n")
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&top, "top", 5, "entries of each state")
	return cmd
}

func (c *cli) printLargest(st inspect.State, largest []inspect.Sized) error {
	for i, e := range largest {
		if c.json() {
			if err := c.emit(struct {
				Operator string `json:"operator"`
				UID      string `json:"uid,omitempty"`
				State    string `json:"state"`
				inspect.Sized
			}{st.Operator, st.UID, st.Name, e}); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			c.printf("%s / %s (%s):\n", st.Operator, st.Name, st.Kind)
		}
		c.printf("  %s: %s\n", entryText(e.Entry), bytesText(e.Bytes))
	}
	return nil
}
