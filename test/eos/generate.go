package eos

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Spec describes an input: record n is a pure function of the spec, so it can be made anywhere and any number of times.
type Spec struct {
	Seed       uint64        `json:"seed"`
	Records    int64         `json:"records"`
	Partitions int           `json:"partitions"`
	Customers  int           `json:"customers"`
	Start      time.Time     `json:"start"`        // event time of record 0
	Step       time.Duration `json:"step"`         // event time between records, before the disorder
	OutOfOrder time.Duration `json:"out_of_order"` // a record's event time lies at most this much below what came before it
	Window     time.Duration `json:"window"`
	// MalformedEvery makes each k-th record one that is no JSON; it has no part in the totals. 0: none.
	MalformedEvery int64 `json:"malformed_every,omitempty"`
	// HotEvery makes each k-th thousand of records one in which nine of ten are of one customer. 0: none.
	HotEvery int64 `json:"hot_every,omitempty"`
}

// DefaultSpec is a spec of n records: 4 partitions, 100 customers, a record each 20 ms of event time, 5 s of disorder, windows of a minute.
func DefaultSpec(seed uint64, n int64) Spec {
	return Spec{
		Seed: seed, Records: n, Partitions: 4, Customers: 100, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Step: 20 * time.Millisecond, OutOfOrder: 5 * time.Second, Window: time.Minute,
	}
}

// Validate reports what cannot be.
func (s Spec) Validate() error {
	var errs []error
	for _, c := range []struct {
		ok   bool
		text string
	}{
		{s.Records >= 0, "records must not be negative"},
		{s.Partitions > 0, "partitions must be positive"},
		{s.Customers > 0, "customers must be positive"},
		{s.Step > 0, "step must be positive"},
		{s.OutOfOrder >= 0, "out-of-order must not be negative"},
		{s.Window >= time.Second, "window must be at least 1s"},
		{!s.Start.IsZero() && s.Start.UnixMilli() >= 0, "start must lie after 1970"},
	} {
		if !c.ok {
			errs = append(errs, errors.New("eos: "+c.text))
		}
	}
	return errors.Join(errs...)
}

// Purchase is an input value.
type Purchase struct {
	Customer string    `json:"customer_id"`
	Cents    int64     `json:"amount_in_cents"`
	At       time.Time `json:"occurred_at"`
}

// Total is an output value.
type Total struct {
	Customer string    `json:"customer_id"`
	Start    time.Time `json:"window_start"`
	End      time.Time `json:"window_end"`
	Cents    int64     `json:"amount_in_cents"`
	Count    int64     `json:"count"`
}

// mix is splitmix64: a bijective scrambler of 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// draw is a number below n that depends on the seed, the record and the purpose.
func (s Spec) draw(record int64, purpose, n uint64) uint64 {
	return mix(mix(s.Seed^purpose<<56)+uint64(record)) % n
}

// Malformed reports whether record n is one that cannot be decoded.
func (s Spec) Malformed(n int64) bool {
	return s.MalformedEvery > 0 && n%s.MalformedEvery == s.MalformedEvery-1
}

// Purchase is record n. Its event time has milliseconds.
func (s Spec) Purchase(n int64) Purchase {
	at := s.Start.Add(time.Duration(n) * s.Step)
	if s.OutOfOrder > 0 {
		at = at.Add(-time.Duration(s.draw(n, 1, uint64(s.OutOfOrder/time.Millisecond)+1)) * time.Millisecond)
	}
	if at.Before(s.Start) {
		at = s.Start
	}
	customer := s.draw(n, 2, uint64(s.Customers))
	if s.HotEvery > 0 && n/1000%s.HotEvery == s.HotEvery-1 && s.draw(n, 4, 10) > 0 {
		customer = 0
	}
	return Purchase{
		Customer: fmt.Sprintf("c%d", customer),
		Cents:    1 + int64(s.draw(n, 3, 10_000)),
		At:       at.Truncate(time.Millisecond).UTC(),
	}
}

// Partition is where record n goes.
func (s Spec) Partition(n int64) int32 { return int32(n % int64(s.Partitions)) }

// Value is record n as it is written.
func (s Spec) Value(n int64) []byte {
	if s.Malformed(n) {
		return fmt.Appendf(nil, "malformed %d", n)
	}
	b, _ := json.Marshal(s.Purchase(n))
	return b
}

// sentinelPrefix marks the customers of the records that close all windows.
const sentinelPrefix = "~end-"

// Sentinel is the last record of a partition: so late that its watermark closes every window of the other records.
func (s Spec) Sentinel(partition int) Purchase {
	at := s.Start.Add(time.Duration(s.Records) * s.Step).Add(s.OutOfOrder + time.Hour).Truncate(s.Window).Add(s.Window)
	return Purchase{Customer: fmt.Sprintf("%s%d", sentinelPrefix, partition), Cents: 1, At: at.UTC()}
}
