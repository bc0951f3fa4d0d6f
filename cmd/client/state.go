package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/checkpoint/inspect"
)

const whichSnapshot = "\n\nA snapshot is a savepoint or a retained checkpoint: its folder or its _metadata file, as a URI (hdfs://, file://) or a path. A path that is not on\n" +
	"this machine is one of the cluster's file system (fs.defaultFS). Nothing is changed."

func (c *cli) stateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "state", Short: "look into savepoints and checkpoints", Args: atMost(),
		Long:    "Look into a savepoint or checkpoint without the job that wrote it: what it holds (ls), its entries (show), what differs between two (diff),\nwhat takes most (largest)." + whichSnapshot,
		Example: "  thalweg state ls hdfs:///savepoints/savepoint-1a2b3c-0123456789ab\n  thalweg state show --key alice hdfs:///savepoints/savepoint-1a2b3c-0123456789ab",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.stateListCommand(), c.stateShowCommand(), c.stateDiffCommand(), c.stateLargestCommand())
	return cmd
}

func (c *cli) stateListCommand() *cobra.Command {
	var read bool
	cmd := &cobra.Command{
		Use: "ls snapshot", Short: "list the operators and states of a snapshot", Args: named("a snapshot"),
		Long: "List the operators of a snapshot and their states: kind, types, entries, size. The numbers of each state are in the files, which only\n" +
			"--read reads; without it they are shown where the metadata has them." + whichSnapshot,
		Example: "  thalweg state ls hdfs:///savepoints/savepoint-1a2b3c-0123456789ab\n  thalweg state ls --read -o json /savepoints/savepoint-1a2b3c-0123456789ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, done, err := c.open(cmd.Context(), args...)
			if err != nil {
				return err
			}
			defer done()
			s := all[0]
			operators := s.Operators()
			if read {
				for i := range operators {
					for j := range operators[i].States {
						st := &operators[i].States[j]
						if st.Entries, st.Bytes, err = s.Count(cmd.Context(), *st); err != nil {
							return err
						}
					}
				}
			}
			if c.json() {
				for _, o := range operators {
					if err := c.emit(o); err != nil {
						return err
					}
				}
				return nil
			}
			return c.listStates(s, operators)
		},
	}
	cmd.Flags().BoolVar(&read, "read", false, "read the files, for the entries and bytes of each state")
	return cmd
}

func (c *cli) listStates(s *inspect.Snapshot, operators []inspect.Operator) error {
	kind, form := "Checkpoint", "native"
	if s.Meta.Savepoint {
		kind = "Savepoint"
	}
	if s.Meta.Canonical {
		form = "canonical"
	}
	c.printf("%s %d of job %q (%s), %s, written %s by thalweg %s\n", kind, s.Meta.ID, s.Meta.JobName, s.Meta.JobID, form, s.Meta.Trigger.UTC().Format(time.RFC3339), s.Meta.Product)
	if len(operators) == 0 {
		c.printf("No operator has state.\n")
	}
	known := func(n int64, text func(int64) string) string {
		if n < 0 {
			return "-"
		}
		return text(n)
	}
	for _, o := range operators {
		title := operatorTitle(o.Name, o.UID)
		c.printf("\n%s: parallelism %d of at most %d, %s\n", title, o.Parallelism, o.MaxParallelism, bytesText(o.Bytes))
		t := newTable("  STATE", "KIND", "KEY", "VALUE", "ENTRIES", "BYTES")
		for _, st := range o.States {
			t.row("", "  "+st.Name, st.Kind, orDash(st.Key), orDash(st.Value), known(st.Entries, count), known(st.Bytes, bytesText))
		}
		if err := t.writeTo(c.print); err != nil {
			return err
		}
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *cli) stateShowCommand() *cobra.Command {
	var key string
	var limit int
	cmd := &cobra.Command{
		Use: "show snapshot [operator [state]]", Short: "print entries of a snapshot", Args: named("a snapshot", "an operator", "a state"),
		Long: "Print entries, a line each: the key, for maps the key in the map, for windows their start, for timers their time, and the value as JSON.\n" +
			"States that functions open are user-NAME, per-window ones window-user-NAME. An operator is a name, a uid or the beginning of an id. Types with\n" +
			"a codec of their own are shown as hex." + whichSnapshot,
		Example: "  thalweg state show hdfs:///savepoints/savepoint-1a2b3c-0123456789ab customer-totals\n" +
			"  thalweg state show -o json --limit 0 SAVEPOINT customer-totals window | jq .value\n  thalweg state show --key alice SAVEPOINT",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return &usageError{fmt.Errorf("--limit %d: want a number of entries, or 0 for all", limit)}
			}
			all, done, err := c.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer done()
			operator, name := at(args, 1), at(args, 2)
			states, err := all[0].Find(operator, name)
			if err != nil {
				return &usageError{err}
			}
			shown := 0
			for _, st := range states {
				if err := c.showState(cmd.Context(), all[0], st, keyText(key, cmd.Flags().Changed("key")), limit, &shown); err != nil {
					return err
				}
			}
			if shown == 0 && !c.json() {
				c.printf("No entry.\n")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "only entries of this key: JSON, or a plain string")
	cmd.Flags().IntVar(&limit, "limit", 100, "entries of each state; 0 for all")
	return cmd
}

func at(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

// keyText is the JSON of a key that was given as such, or as a plain string; nil matches all.
func keyText(key string, given bool) func(json.RawMessage) bool {
	if !given {
		return func(json.RawMessage) bool { return true }
	}
	quoted, _ := json.Marshal(key) // a string
	return func(k json.RawMessage) bool { return string(k) == key || string(k) == string(quoted) }
}

// errEnough ends a walk over entries.
var errEnough = errors.New("enough")

func (c *cli) showState(ctx context.Context, s *inspect.Snapshot, st inspect.State, match func(json.RawMessage) bool, limit int, shown *int) error {
	n, more := 0, false
	err := s.Each(ctx, st, func(e inspect.Entry) error {
		if !match(e.Key) {
			return nil
		}
		if limit > 0 && n == limit {
			more = true
			return errEnough
		}
		*shown++
		if n++; c.json() {
			return c.emit(struct {
				Operator string `json:"operator"`
				UID      string `json:"uid,omitempty"`
				State    string `json:"state"`
				Kind     string `json:"kind"`
				inspect.Entry
			}{st.Operator, st.UID, st.Name, st.Kind, e})
		}
		if n == 1 {
			c.printf("%s / %s (%s):\n", operatorTitle(st.Operator, st.UID), st.Name, st.Kind)
		}
		c.printf("  %s\n", entryText(e))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	if more {
		c.notef("%s / %s has more than %d entries: --limit 0 prints all", operatorTitle(st.Operator, st.UID), st.Name, limit)
	}
	return nil
}

// operatorTitle is the name of an operator, with its UID where that says more.
func operatorTitle(name, uid string) string {
	if uid == "" || uid == name {
		return name
	}
	return name + " (uid " + uid + ")"
}

// entryText is an entry in a line.
func entryText(e inspect.Entry) string {
	var b strings.Builder
	if e.Key != nil {
		fmt.Fprintf(&b, "%s", e.Key)
	} else {
		fmt.Fprintf(&b, "subtask %d", e.Subtask)
	}
	if e.MapKey != nil {
		fmt.Fprintf(&b, " [%s]", e.MapKey)
	}
	const layout = "2006-01-02T15:04:05.000Z"
	if e.Window != nil {
		fmt.Fprintf(&b, " window %s", e.Window.Format(layout))
	} else if e.Namespace != 0 {
		fmt.Fprintf(&b, " namespace %d", e.Namespace)
	}
	if e.Time != nil {
		fmt.Fprintf(&b, " at %s", time.UnixMilli(*e.Time).UTC().Format(layout))
	}
	if e.Value != nil {
		fmt.Fprintf(&b, " = %s", e.Value)
	}
	return b.String()
}

func (c *cli) stateDiffCommand() *cobra.Command {
	var samples int
	cmd := &cobra.Command{
		Use: "diff old new", Short: "compare two snapshots", Args: named("an old snapshot", "a new snapshot"),
		Long: "Compare two snapshots, state by state: entries that were added (+), removed (-) and changed (~), with examples. Operators are matched by their\n" +
			"ids, which come from their uids. The exit code is 0 whether or not they differ; use -o json for scripts." + whichSnapshot,
		Example: "  thalweg state diff hdfs:///savepoints/savepoint-1a2b3c-0123456789ab hdfs:///savepoints/savepoint-1a2b3c-ba9876543210",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) < 2:
				return &usageError{errors.New("diff needs two snapshots, the old and the new")}
			case samples < 0:
				return &usageError{fmt.Errorf("--samples %d: want a number of examples", samples)}
			}
			all, done, err := c.open(cmd.Context(), args...)
			if err != nil {
				return err
			}
			defer done()
			changes, err := inspect.Diff(cmd.Context(), all[0], all[1], samples)
			if err != nil {
				return err
			}
			differ := 0
			for _, ch := range changes {
				if !ch.Equal() {
					differ++
				}
				if c.json() {
					if err := c.emit(ch); err != nil {
						return err
					}
					continue
				}
				c.printChange(ch)
			}
			if !c.json() && differ == 0 {
				c.printf("No difference in %d states.\n", len(changes))
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&samples, "samples", 5, "examples of each state")
	return cmd
}

func (c *cli) printChange(ch inspect.Change) {
	if ch.Equal() {
		return
	}
	st, note := ch.New, ""
	switch {
	case ch.New == nil:
		st, note = ch.Old, ", gone"
	case ch.Old == nil:
		note = ", new"
	case ch.Types:
		note = fmt.Sprintf(", was %s %s of %s", ch.Old.Kind, ch.Old.Value, ch.Old.Key)
	}
	c.printf("%s / %s (%s%s): %s added, %s removed, %s changed, %s the same\n", operatorTitle(st.Operator, st.UID), st.Name, st.Kind, note, count(ch.Added), count(ch.Removed), count(ch.Changed), count(ch.Same))
	for _, d := range ch.Samples {
		switch {
		case d.Old == nil:
			c.printf("  + %s\n", entryText(*d.New))
		case d.New == nil:
			c.printf("  - %s\n", entryText(*d.Old))
		default:
			c.printf("  ~ %s\n    was %s\n", entryText(*d.New), d.Old.Value)
		}
	}
}

// named is atMost with the first argument required.
func named(names ...string) cobra.PositionalArgs {
	most := atMost(names...)
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{fmt.Errorf("%s needs %s (see %s --help)", cmd.Name(), names[0], cmd.CommandPath())}
		}
		return most(cmd, args)
	}
}
