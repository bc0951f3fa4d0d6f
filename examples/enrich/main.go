// Command enrich adds to each order what a service knows about its customer, with many requests under way at once.
//
//	thalweg run -t local bin/examples/enrich -orders 1000 [-service http://crm/tier]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Order is an order of a customer.
type Order struct {
	ID       int64
	Customer string
	Cents    int64
}

// Enriched is an order with the customer's tier.
type Enriched struct {
	Order
	Tier string
}

func (e Enriched) String() string {
	return fmt.Sprintf("order %d of %s (%s)", e.ID, e.Customer, e.Tier)
}

// tiers asks a service for the tier of a customer: GET <service>?customer=NAME. Invoke runs on many goroutines at once.
type tiers struct {
	service string
	client  *http.Client
}

func newTiers(service string) func() stream.AsyncFunction[Order, Enriched] {
	return func() stream.AsyncFunction[Order, Enriched] { return &tiers{service: service} }
}

func (t *tiers) Open(*stream.TaskContext) error {
	t.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	return nil
}

func (t *tiers) Invoke(ctx context.Context, o Order) ([]Enriched, error) {
	tier, err := t.ask(ctx, o.Customer)
	if err != nil {
		return nil, fmt.Errorf("tier of %s: %w", o.Customer, err)
	}
	return []Enriched{{o, tier}}, nil
}

func (t *tiers) ask(ctx context.Context, customer string) (string, error) {
	if t.service == "" { // for a try without a service
		return []string{"gold", "silver", "bronze"}[len(customer)%3], nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.service+"?customer="+url.QueryEscape(customer), http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(io.LimitReader(resp.Body, 100))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", t.service, resp.Status)
	}
	return strings.TrimSpace(string(b)), err
}

// OnTimeout lets an order go on without a tier: better than to stop for it.
func (t *tiers) OnTimeout(o Order) ([]Enriched, error) { return []Enriched{{o, "unknown"}}, nil }

func (t *tiers) Close() error {
	t.client.CloseIdleConnections()
	return nil
}

// enriched is the pipeline.
func enriched(orders stream.DataStream[Order], service string) stream.SingleOutputStreamOperator[Enriched] {
	return orders.UnorderedWait(newTiers(service), stream.AsyncOptions[Enriched]{
		Timeout: 500 * time.Millisecond, Capacity: 100,
		Retry: stream.RetryExponential[Enriched](5, 10*time.Millisecond, 100*time.Millisecond, 2),
	}).Name("tiers").UID("tiers")
}

func order(n int64) Order {
	names := []string{"Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Margaret"}
	return Order{n, names[n%int64(len(names))], 100 * n}
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("enrich", flag.ContinueOnError)
	n := f.Int64("orders", 1000, "orders to make")
	service := f.String("service", "", "address of the service; a stand-in when empty")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	orders := env.FromSource(datagen.Source(order, datagen.Count(*n)), stream.NoWatermarks[Order](), "orders").UID("orders")
	enriched(orders.DataStream, *service).Print().Name("out").UID("out")
	return nil
}

func main() { stream.Main("enrich", build) }
