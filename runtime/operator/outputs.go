package operator

import (
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// OutputTypes are the record types of a node's side outputs by their tags, and under "" that of its main output; nil for one without records.
func OutputTypes(n *graph.Node) map[string]Type {
	types := map[string]Type{}
	for tag, s := range n.Side {
		types[tag], _ = s.(Type)
	}
	types[""], _ = n.OutImpl.(Type)
	return types
}

// Outputs makes of what takes an operator's records, by the tag of the side output ("" is the main one), what the operator writes to. types
// are those of the outputs that are read, and of the main one, which may have none. Side outputs get copies of their records (copying).
func Outputs(conf config.Configuration, types map[string]Type, outs map[string][]any) (out any, side map[string]any, err error) {
	side = map[string]any{}
	var sides []advancer
	for tag, typ := range types {
		if typ == nil {
			continue
		}
		tee, err := typ.Tee(outs[tag])
		if err != nil {
			return nil, nil, err
		}
		if tag == "" {
			out = tee
			continue
		}
		if tee, err = typ.copying(conf, tee); err != nil {
			return nil, nil, err
		}
		side[tag] = tee
		if a, ok := tee.(advancer); ok {
			sides = append(sides, a)
		}
	}
	if typ := types[""]; typ != nil && len(sides) > 0 {
		out, err = typ.lead(out, sides)
	}
	return out, side, err
}

// advancer is the part of a Receiver that is told how far event time is.
type advancer interface {
	Watermark(ts int64) error
	Idle(idle bool) error
}

// leading passes an operator's progress on to its side outputs too: operators tell only the main one.
// Source: Flink BroadcastingOutputCollector.
type leading struct {
	main  advancer
	sides []advancer
}

func (l *leading) Watermark(ts int64) error {
	if err := l.main.Watermark(ts); err != nil {
		return err
	}
	for _, s := range l.sides {
		if err := s.Watermark(ts); err != nil {
			return err
		}
	}
	return nil
}

func (l *leading) Idle(idle bool) error {
	if err := l.main.Idle(idle); err != nil {
		return err
	}
	for _, s := range l.sides {
		if err := s.Idle(idle); err != nil {
			return err
		}
	}
	return nil
}

// steered is a BatchReceiver with another's watermarks and idleness.
type steered[T any] struct {
	advancer
	out BatchReceiver[T]
}

func (s *steered[T]) encodes() bool                         { return encodes(s.out) }
func (s *steered[T]) Process(v T, m Meta) error             { return s.out.Process(v, m) }
func (s *steered[T]) ProcessBatch(vs []T, ts []int64) error { return s.out.ProcessBatch(vs, ts) }

func (t *recordType[T]) lead(out any, sides []advancer) (any, error) {
	r, err := receiver[T](out)
	if err != nil {
		return nil, err
	}
	return Receiver[T](&steered[T]{&leading{r, sides}, inBatches(r)}), nil
}
