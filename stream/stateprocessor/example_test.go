package stateprocessor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/stateprocessor"
)

// Balance is what the job "accounts" keeps for each customer, in the state "balance" of the operator with the uid "balances".
type Balance struct {
	Cents    int64
	Payments int32
}

// balances opens the states as the job's function does.
type balances struct{ balance stream.ValueState[Balance] }

func (b *balances) Open(rt *stream.RuntimeContext[string]) (err error) {
	b.balance, err = rt.ValueState[Balance]("balance")
	return err
}

// row is a line of a file: customer,cents.
type row struct {
	customer string
	cents    int64
}

// rows reads a file line by line.
func rows(path string) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(row{}, err)
			return
		}
		defer f.Close() //nolint:errcheck // read only
		for lines := bufio.NewScanner(f); lines.Scan(); {
			customer, cents, _ := strings.Cut(lines.Text(), ",")
			n, err := strconv.ParseInt(cents, 10, 64)
			if !yield(row{customer, n}, err) {
				return
			}
		}
	}
}

// fromRows makes state of rows.
type fromRows struct{ balances }

func (b *fromRows) ProcessElement(_ *stateprocessor.Key[string], r row) error {
	v, _, err := b.balance.Value()
	return errors.Join(err, b.balance.Update(Balance{v.Cents + r.cents, v.Payments + 1}))
}

// debtors drops the state of who owes nothing.
type debtors struct{ balances }

func (b *debtors) ProcessKey(_ *stateprocessor.Key[string], _ func(struct{})) error {
	v, _, err := b.balance.Value()
	if err == nil && v.Cents >= 0 {
		err = b.balance.Clear()
	}
	return err
}

// texts says what is stored.
type texts struct{ balances }

func (b *texts) ProcessKey(k *stateprocessor.Key[string], emit func(string)) error {
	v, _, err := b.balance.Value()
	emit(fmt.Sprintf("%s: %d cents, %d payments", k.Key(), v.Cents, v.Payments))
	return err
}

// State is made of a file; the savepoint is what a job starts from (thalweg run -s). Then it is changed, and read.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "savepoints-")
	check(err)
	defer os.RemoveAll(dir) //nolint:errcheck // of the example
	check(os.WriteFile(dir+"/balances.csv", []byte("ann,250\nbob,-100\nann,50\ncid,-7\n"), 0o600))

	first, err := stateprocessor.New(128).
		With("balances", stateprocessor.Records(rows(dir+"/balances.csv"), func(r row) string { return r.customer }, &fromRows{})).
		Write(ctx, "file://"+dir)
	check(err)

	s, err := stateprocessor.Open(ctx, first)
	check(err)
	second, err := s.Writer().With("balances", stateprocessor.Keys[string](&debtors{})).Write(ctx, "file://"+dir)
	check(err)
	check(s.Close())

	s, err = stateprocessor.Open(ctx, second)
	check(err)
	var lines []string
	for line, err := range stateprocessor.Keyed(ctx, s, "balances", &texts{}) {
		check(err)
		lines = append(lines, line)
	}
	check(s.Close())
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	// Output:
	// bob: -100 cents, 1 payments
	// cid: -7 cents, 1 payments
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
