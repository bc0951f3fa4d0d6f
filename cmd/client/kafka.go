package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/connector/kafka"
)

const whichTransactions = "\n\nAn exactly-once sink writes in transactions; consumers with isolation level read_committed wait for the end of those that are open. A job that\n" +
	"starts again ends those of its former runs by itself; this is for jobs that do not."

// transactionFlags are those of all actions on transactions.
type transactionFlags struct {
	brokers, properties, prefix, snapshot string
	ids                                   []string
	limit                                 time.Duration
}

func (f *transactionFlags) add(cmd *cobra.Command, snapshot string) {
	fl := cmd.Flags()
	fl.StringVar(&f.brokers, "bootstrap-server", "", "Kafka brokers, host:port, comma separated")
	fl.StringVar(&f.properties, "command-config", "", "file of client properties for TLS and SASL, as of Kafka's own tools")
	fl.StringVar(&f.snapshot, "snapshot", "", snapshot)
	fl.DurationVar(&f.limit, "timeout", time.Minute, "how long to wait for the brokers")
}

func (f *transactionFlags) addSelection(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only those of a sink with kafka.ExactlyOnce(PREFIX)")
	cmd.Flags().StringArrayVar(&f.ids, "transactional-id", nil, "only this id, of whatever application; repeat it for more")
}

func (c *cli) kafkaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kafka-transactions", Short: "list, commit and abort what dead jobs left open in Kafka", Args: atMost(),
		Long: "Look after the Kafka transactions of exactly-once sinks: list them, commit what a snapshot has prepared, abort the others." + whichTransactions,
		Example: "  thalweg kafka-transactions list --bootstrap-server kafka:9092 --prefix order-totals-\n" +
			"  thalweg kafka-transactions commit --bootstrap-server kafka:9092 --snapshot hdfs:///checkpoints/JOB/chk-42",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.kafkaListCommand(), c.kafkaCommitCommand(), c.kafkaAbortCommand())
	return cmd
}

// transactions connects to the brokers and reads what the snapshot has prepared, if one is named. done closes both.
func (c *cli) transactions(ctx context.Context, f *transactionFlags) (t *kafka.Transactions, prepared []preparedHere, done func(), err error) {
	opts, err := f.options()
	if err != nil {
		return nil, nil, nil, &usageError{err}
	}
	if f.snapshot != "" {
		if prepared, err = c.prepared(ctx, f.snapshot); err != nil {
			return nil, nil, nil, err
		}
	}
	t, err = kafka.ConnectTransactions(ctx, zerolog.Nop(), append(opts, kafka.ConnectTimeout(f.limit))...)
	if err != nil {
		return nil, nil, nil, &exitError{exitUnreachable, err}
	}
	return t, prepared, t.Close, nil
}

// preparedHere is a transaction that a snapshot has prepared, with the operator that did.
type preparedHere struct {
	kafka.PreparedTransaction
	operator string
}

// prepared reads the Kafka transactions that a snapshot has prepared.
func (c *cli) prepared(ctx context.Context, uri string) ([]preparedHere, error) {
	all, done, err := c.open(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer done()
	var found []preparedHere
	items, err := all[0].Prepared()
	if err != nil {
		return nil, &usageError{err}
	}
	others := map[string]bool{}
	for _, it := range items {
		p, err := kafka.DecodePrepared(it.Item)
		if err != nil {
			if !others[it.Operator] {
				c.notef("what operator %s has prepared is not of this Kafka sink, and left alone", it.Operator)
			}
			others[it.Operator] = true
			continue
		}
		found = append(found, preparedHere{p, it.Operator})
	}
	return found, nil
}

// transactionLine is a transaction as it is printed with -o json.
type transactionLine struct {
	ID          string          `json:"transactionalId"`
	State       string          `json:"state"`
	ProducerID  int64           `json:"producerId"`
	Epoch       int16           `json:"producerEpoch"`
	Start       int64           `json:"startTimestamp,omitempty"` // ms since 1970
	Age         int64           `json:"ageMs,omitempty"`
	Timeout     int64           `json:"timeoutMs"`
	Coordinator int32           `json:"coordinatorId"`
	Partitions  []partitionLine `json:"partitions"`
	Prepared    *int64          `json:"preparedByCheckpoint,omitempty"`
}

type partitionLine struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

func line(x kafka.Transaction, prepared []preparedHere, now time.Time) transactionLine {
	l := transactionLine{ID: x.ID, State: x.State, ProducerID: x.ProducerID, Epoch: x.Epoch, Timeout: x.Timeout.Milliseconds(), Coordinator: x.Coordinator, Partitions: []partitionLine{}}
	if !x.Started.IsZero() {
		l.Start, l.Age = x.Started.UnixMilli(), max(now.Sub(x.Started).Milliseconds(), 0)
	}
	for _, p := range x.Partitions {
		l.Partitions = append(l.Partitions, partitionLine{p.Topic, p.Partition})
	}
	if i := preparing(x, prepared); i >= 0 {
		l.Prepared = new(prepared[i].Checkpoint)
	}
	return l
}

// preparing is the index of what x is in prepared, or -1.
func preparing(x kafka.Transaction, prepared []preparedHere) int {
	return slices.IndexFunc(prepared, func(p preparedHere) bool { return p.Is(x) })
}

func (c *cli) kafkaListCommand() *cobra.Command {
	var f transactionFlags
	var idle bool
	cmd := &cobra.Command{
		Use: "list", Short: "list open transactions", Args: atMost(),
		Long: "List the open transactions of the cluster, of a prefix or of single ids: state, producer id and epoch, age, time-out, partitions. With\n" +
			"--snapshot, those that the snapshot has prepared are marked: they belong to it." + whichTransactions,
		Example: "  thalweg kafka-transactions list --bootstrap-server kafka:9092\n" +
			"  thalweg kafka-transactions list --bootstrap-server kafka:9092 --prefix order-totals- -o json | jq -r 'select(.ageMs>600000).transactionalId'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*f.limit)
			defer cancel()
			t, prepared, done, err := c.transactions(ctx, &f)
			if err != nil {
				return err
			}
			defer done()
			all, err := t.List(ctx, kafka.Selection{Prefix: f.prefix, IDs: f.ids})
			if !idle {
				all = slices.DeleteFunc(all, func(x kafka.Transaction) bool { return !x.Open() })
			}
			if perr := c.printTransactions(all, prepared); perr != nil {
				return perr
			}
			return err
		},
	}
	f.add(cmd, "mark what this snapshot has prepared")
	f.addSelection(cmd)
	cmd.Flags().BoolVar(&idle, "idle", false, "list transactional ids that are in no transaction, too")
	return cmd
}

func (c *cli) printTransactions(all []kafka.Transaction, prepared []preparedHere) error {
	now := time.Now()
	if c.json() {
		for _, x := range all {
			if err := c.emit(line(x, prepared, now)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		c.printf("No open transaction.\n")
		return nil
	}
	t := newTable("TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "AGE", "TIME-OUT", "PREPARED BY", "PARTITIONS")
	for _, x := range all {
		age, by := "-", "-"
		if !x.Started.IsZero() {
			age = max(now.Sub(x.Started), 0).Round(time.Second).String()
		}
		if i := preparing(x, prepared); i >= 0 {
			by = fmt.Sprintf("checkpoint %d", prepared[i].Checkpoint)
		}
		t.row("", x.ID, x.State, fmt.Sprint(x.ProducerID), fmt.Sprint(x.Epoch), age, x.Timeout.String(), by, partitionsText(x.Partitions))
	}
	return t.writeTo(c.print)
}

// partitionsText is "topic-0,1,2 other-0".
func partitionsText(all []kafka.TopicPartition) string {
	var b strings.Builder
	for i, p := range all {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "%s-%d", p.Topic, p.Partition)
		case all[i-1].Topic == p.Topic:
			fmt.Fprintf(&b, ",%d", p.Partition)
		default:
			fmt.Fprintf(&b, " %s-%d", p.Topic, p.Partition)
		}
	}
	return orDash(b.String())
}

func (c *cli) kafkaCommitCommand() *cobra.Command {
	var f transactionFlags
	cmd := &cobra.Command{
		Use: "commit", Short: "commit what a snapshot has prepared", Args: atMost(),
		Long: "Commit the transactions that a completed checkpoint or a savepoint has prepared, and no others; what is committed already stays so. Take the job's\n" +
			"newest snapshot, and do not start the job from an older one afterwards: it would write the records again. The exit code is 1 when one of\n" +
			"them is lost, since the brokers have aborted it." + whichTransactions,
		Example: "  thalweg kafka-transactions commit --bootstrap-server kafka:9092 --snapshot hdfs:///checkpoints/JOB/chk-42",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.snapshot == "" {
				return &usageError{errors.New("commit needs --snapshot, the checkpoint or savepoint whose transactions are to be committed: what no snapshot has prepared is not whole")}
			}
			ctx := cmd.Context()
			t, prepared, done, err := c.transactions(ctx, &f)
			if err != nil {
				return err
			}
			defer done()
			if len(prepared) == 0 && !c.json() {
				c.printf("The snapshot has prepared no transaction.\n")
			}
			var errs []error
			for _, p := range prepared {
				wctx, cancel := context.WithTimeout(ctx, f.limit)
				before, err := t.Commit(wctx, p.PreparedTransaction)
				cancel()
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if err := c.tellEnd(p.ID, map[bool]string{false: "committed", true: "committed before"}[before], p.Checkpoint); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
	f.add(cmd, "checkpoint or savepoint: its folder or _metadata, as a URI or a path")
	return cmd
}

// tellEnd prints what became of a transaction; checkpoint 0 is none.
func (c *cli) tellEnd(id, what string, checkpoint int64) error {
	if c.json() {
		l := map[string]any{"transactionalId": id, "outcome": what}
		if checkpoint > 0 {
			l["checkpointId"] = checkpoint
		}
		return c.emit(l)
	}
	if checkpoint > 0 {
		what += fmt.Sprintf(" (checkpoint %d)", checkpoint)
	}
	c.printf("%s: %s\n", id, what)
	return nil
}

func (c *cli) kafkaAbortCommand() *cobra.Command {
	var f transactionFlags
	var yes bool
	var older time.Duration
	cmd := &cobra.Command{
		Use: "abort", Short: "abort open transactions of a prefix or of single ids", Args: atMost(),
		Long: "Abort open transactions and fence their producers: their records are gone. With --snapshot, those that the snapshot has prepared are kept. Without\n" +
			"it, records of a completed checkpoint that are not committed yet are LOST for the job, which says so when it is restored. Asks first." + whichTransactions,
		Example: "  thalweg kafka-transactions abort --bootstrap-server kafka:9092 --prefix order-totals- --snapshot hdfs:///checkpoints/JOB/chk-42\n" +
			"  thalweg kafka-transactions abort --bootstrap-server kafka:9092 --transactional-id order-totals-3-0 --older-than 1h --yes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.prefix == "" && len(f.ids) == 0 {
				return &usageError{errors.New("abort needs --prefix or --transactional-id: it does not abort everybody's transactions")}
			}
			ctx := cmd.Context()
			t, prepared, done, err := c.transactions(ctx, &f)
			if err != nil {
				return err
			}
			defer done()
			return c.abort(ctx, t, &f, prepared, older, yes)
		},
	}
	f.add(cmd, "keep what this snapshot has prepared")
	f.addSelection(cmd)
	cmd.Flags().DurationVar(&older, "older-than", 0, "only those that are open for longer")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *cli) abort(ctx context.Context, t *kafka.Transactions, f *transactionFlags, prepared []preparedHere, older time.Duration, yes bool) error {
	lctx, cancel := context.WithTimeout(ctx, f.limit)
	all, err := t.List(lctx, kafka.Selection{Prefix: f.prefix, IDs: f.ids})
	cancel()
	if err != nil {
		return err
	}
	kept := 0
	all = slices.DeleteFunc(all, func(x kafka.Transaction) bool {
		if x.State != "Ongoing" || time.Since(x.Started) < older {
			return true
		}
		if preparing(x, prepared) >= 0 {
			kept++
			return true
		}
		return false
	})
	if kept > 0 {
		c.notef("%d transactions that the snapshot has prepared are kept: thalweg kafka-transactions commit ends them", kept)
	}
	if len(all) == 0 {
		if !c.json() {
			c.printf("No open transaction to abort.\n")
		}
		return nil
	}
	if !yes {
		if err := c.confirm(all, prepared, f.snapshot != ""); err != nil {
			return err
		}
	}
	var errs []error
	for _, x := range all {
		wctx, cancel := context.WithTimeout(ctx, f.limit)
		err := t.Abort(wctx, x)
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := c.tellEnd(x.ID, "aborted", 0); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// confirm shows what is to be aborted and asks.
func (c *cli) confirm(all []kafka.Transaction, prepared []preparedHere, covered bool) error {
	if !c.inTTY {
		return &usageError{fmt.Errorf("abort asks before it aborts %d transactions, and there is nobody to answer: add --yes", len(all))}
	}
	if err := c.printTransactions(all, prepared); err != nil {
		return err
	}
	risk := ""
	if !covered {
		risk = " What a completed checkpoint has prepared is lost, too (--snapshot keeps it)."
	}
	_, _ = fmt.Fprintf(c.err, "Abort %d transactions?%s [y/N] ", len(all), risk) // nobody reads it any more
	answer, _ := bufio.NewReader(c.in).ReadString('\n')                          // the end of the input is a no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &exitError{exitFailed, errors.New("nothing was aborted")}
	}
	return nil
}
