package jobmaster

import "fmt"

// sentMetric is what each sink counts.
const sentMetric = "numRecordsSend"

// Records returns how many records the job's sources have read and its sinks were given to write since its last start. known is false where
// a task has not reported yet; written is -1 where no sink counts.
func (d *Details) Records() (read, written int64, known bool) {
	written = -1
	for _, v := range d.Vertices {
		for _, t := range v.Tasks {
			if t.Metrics == nil {
				return 0, 0, false
			}
			if len(v.Vertex.Inputs) == 0 {
				read += t.Metrics.GetRecordsIn()
			}
			sent := map[string]int64{} // a sink may report itself what its operator reports for it
			for _, m := range t.Metrics.GetMetrics() {
				if m.GetName() == sentMetric {
					sent[m.GetOperatorId()] = max(sent[m.GetOperatorId()], int64(m.GetValue()))
				}
			}
			for _, n := range sent {
				written = max(written, 0) + n
			}
		}
	}
	return read, written, len(d.Vertices) > 0
}

// Totals is Records for people: "read 1000 records, wrote 40". "" when they are not known.
func (d *Details) Totals() string {
	read, written, known := d.Records()
	if !known {
		return ""
	}
	text := fmt.Sprintf("read %d records", read)
	if written >= 0 {
		text += fmt.Sprintf(", wrote %d", written)
	}
	if d.Restarts > 0 {
		text += ", since its last start"
	}
	return text
}
