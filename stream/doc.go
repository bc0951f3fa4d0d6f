// Package stream is the DataStream API: programs describe a graph of sources, transformations and sinks, and Main runs it, locally or as
// a job of a cluster. It is layer L4, public, and covered by semantic versioning.
//
//	func main() { stream.Main("order-totals", build) }
//
//	func build(env *stream.Environment) error {
//		env.FromSource(orders, watermarks, "orders").UID("orders").
//			KeyBy(func(p Purchase) string { return p.Customer }).
//			Window(stream.TumblingEventTime(time.Minute)).
//			Aggregate(stream.Sum(cents), toTotal).UID("totals").
//			SinkTo(sink).UID("totals-out")
//		return nil
//	}
//
// The names are Flink's. The binary runs in several roles (see Main); in each of them build runs and must build the same graph, so it
// does no I/O and uses no clock, no random numbers and no iteration over maps to decide what to build. Functions given to the graph are
// shared by the subtasks of a process: those with state of their own are given as constructors.
//
// Contexts, states and interfaces of functions are aliases, of which go doc knows no methods: their comments list them, and
// `go doc github.com/thalweg/thalweg/runtime/operator.KeyedContext.RegisterEventTimeTimer` tells more of one.
//
// For each kind of function and operator there is an example, which is a test: example_*_test.go.
//
// Mistakes in a graph (a type that cannot be encoded, a UID used twice) are collected with the file and line of the call and returned
// together.
package stream
