package operator

import "github.com/thalweg/thalweg/runtime/network"

// EndOfData is what a task does when all of its input was processed: the source emits its last watermark, the operators of the chain flush, head
// first, and the end is passed on. source is nil for tasks with network inputs. Errors: those of the operators and of parts.
func EndOfData(source SourceHead, ops []Operator, parts []*network.Partition) error {
	if source != nil {
		if err := source.Finish(); err != nil {
			return err
		}
	}
	for _, o := range ops {
		if err := o.EndInput(); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := p.Broadcast(network.Event{Kind: network.EndOfData}); err != nil {
			return err
		}
	}
	return nil
}
