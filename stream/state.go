package stream

import "github.com/thalweg/thalweg/runtime/operator"

// Keyed state, opened by the methods of RuntimeContext of the same names; it is that of the current key. Methods return an error too, except
// those of broadcast state.
type (
	// ValueState has Value() (v V, found bool, err error), Update(v), Clear().
	ValueState[V any] = operator.ValueState[V]
	// ListState has Get() ([]V, error), Add(v), AddAll(vs), Update(vs), Clear(). It is also what TaskContext opens as operator state.
	ListState[V any] = operator.ListState[V]
	// MapState has Get(k) (v V, found bool, err error), Put(k, v), PutAll(m), Remove(k), Contains(k) (bool, error),
	// ForEach(func(k UK, v V) error), Keys() ([]UK, error), Values() ([]V, error), IsEmpty() (bool, error), Clear().
	MapState[UK comparable, V any] = operator.MapState[UK, V]
	// ReducingState has Get() (v V, found bool, err error), Add(v), Clear().
	ReducingState[V any] = operator.ReducingState[V]
	// AggregatingState has Get() (r R, found bool, err error), Add(v T), Clear().
	AggregatingState[T, R any] = operator.AggregatingState[T, R]
	// StateAggregator is what an AggregatingState adds up with: Create() A, Add(acc *A, v T), Result(acc A) R.
	StateAggregator[T, A, R any] = operator.StateAggregator[T, A, R]
	// KeyedState is any of them.
	KeyedState = operator.KeyedState
	// StateOption is an option of keyed state: WithTTL.
	StateOption = operator.StateOption
	// StateTTLConfig has the fields TTL time.Duration (required, a millisecond at least), UpdateType (OnCreateAndWrite by default),
	// Visibility (NeverReturnExpired by default), CleanupFullSnapshot bool, CleanupIncrementally int (entries for each access, 0 is none),
	// DisableCleanupInBackground bool. A state that is opened with a longer one after a restore, or without, returns again what had expired and
	// was not removed yet.
	StateTTLConfig = operator.StateTTLConfig
	// BroadcastState has the methods of ReadOnlyBroadcastState, and Put(k, v), PutAll(m), Remove(k), Clear().
	BroadcastState[K comparable, V any] = operator.BroadcastState[K, V]
	// ReadOnlyBroadcastState has Get(k) (v V, found bool), Contains(k) bool, Len() int, ForEach(func(k K, v V) error) error,
	// All() iter.Seq2[K, V].
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
