package stream

import "github.com/thalweg/thalweg/runtime/operator"

// Keyed state, opened by the methods of RuntimeContext of the same names; it is that of the current key. ListState is also what TaskContext
// opens as operator state.
type (
	ValueState[V any]                           = operator.ValueState[V]
	ListState[V any]                            = operator.ListState[V]
	MapState[UK comparable, V any]              = operator.MapState[UK, V]
	ReducingState[V any]                        = operator.ReducingState[V]
	AggregatingState[T, R any]                  = operator.AggregatingState[T, R]
	StateAggregator[T, A, R any]                = operator.StateAggregator[T, A, R]
	KeyedState                                  = operator.KeyedState
	StateOption                                 = operator.StateOption
	StateTTLConfig                              = operator.StateTTLConfig
	BroadcastState[K comparable, V any]         = operator.BroadcastState[K, V]
	ReadOnlyBroadcastState[K comparable, V any] = operator.ReadOnlyBroadcastState[K, V]
)

// When reads renew the time to live of a state's values, and whether they return what has expired.
const (
	OnCreateAndWrite            = operator.OnCreateAndWrite
	OnReadAndWrite              = operator.OnReadAndWrite
	NeverReturnExpired          = operator.NeverReturnExpired
	ReturnExpiredIfNotCleanedUp = operator.ReturnExpiredIfNotCleanedUp
)

// WithTTL is an option of keyed state: its values expire when they were not accessed for a time.
func WithTTL(c StateTTLConfig) StateOption { return operator.WithTTL(c) }
