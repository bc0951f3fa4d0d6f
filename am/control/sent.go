package control

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
)

// sentMetric is what each sink counts.
const sentMetric = "_numRecordsSend{"

// Sent returns how many records the sinks of a job were given to write since its last start, over all their subtasks. ok is false while no
// sink of it has reported.
//
// **Source:** Flink's metric numRecordsSend of a sink writer, in the text format of its Prometheus reporter.
func (r *REST) Sent(ctx context.Context, job string) (n int64, ok bool, err error) {
	var text raw
	if err := r.do(ctx, http.MethodGet, "/metrics", nil, &text); err != nil {
		return 0, false, err
	}
	n, ok = sent(text, job)
	return n, ok, nil
}

func sent(text []byte, job string) (n int64, ok bool) {
	series := map[string]int64{} // a sink may report itself what its operator reports for it
	label := `job_id="` + job + `"`
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxBody)
	for lines.Scan() {
		l := lines.Text()
		if strings.HasPrefix(l, "#") || !strings.Contains(l, sentMetric) || !strings.Contains(l, label) {
			continue
		}
		i := strings.LastIndexByte(l, ' ')
		v, err := strconv.ParseFloat(l[i+1:], 64)
		if err != nil {
			continue
		}
		series[l[:i]] = max(series[l[:i]], int64(v))
	}
	for _, v := range series {
		n += v
	}
	return n, len(series) > 0
}
