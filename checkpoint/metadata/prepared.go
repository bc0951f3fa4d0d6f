package metadata

import "encoding/json"

// The operator states in which a committing sink keeps what it prepared: PreparedState is dealt out over its subtasks (Split), PreparedByAll has
// the same items for all of them (Union), so that each knows what the others will commit.
const (
	PreparedState = "sink-committables"
	PreparedByAll = PreparedState + "-all"
)

// Prepared is what one subtask of a sink prepared at the barrier of a checkpoint, in the sink's own encoding. An item of PreparedState is its
// JSON form.
type Prepared struct {
	Checkpoint int64    `json:"checkpoint"`
	Items      [][]byte `json:"items"`
}

// DecodePrepared reads the items of PreparedState or PreparedByAll.
func DecodePrepared(items [][]byte) ([]Prepared, error) {
	var all []Prepared
	for _, item := range items {
		var p Prepared
		if err := json.Unmarshal(item, &p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Prepared lists what the operator's subtasks prepared to commit and did not know to be committed, by subtask.
func (o *Operator) Prepared() (map[int][]Prepared, error) {
	all := map[int][]Prepared{}
	for i := range o.Subtasks {
		for _, l := range o.Subtasks[i].Lists {
			if l.Name != PreparedState {
				continue
			}
			p, err := DecodePrepared(l.Items)
			if err != nil {
				return nil, err
			}
			all[o.Subtasks[i].Index] = append(all[o.Subtasks[i].Index], p...)
		}
	}
	return all, nil
}
