package control

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// What the sinks wrote is counted per subtask, once for each, and only for the job that is asked for.
func TestSent(t *testing.T) {
	text := "# TYPE flink_taskmanager_job_task_operator_numRecordsSend gauge\n" +
		`flink_taskmanager_job_task_operator_numRecordsSend{tm_id="a",job_id="` + jobID + `",task_name="win -> Sink: out {1}",subtask_index="0",operator_id="s"} 10` + "\n" +
		`flink_taskmanager_job_task_operator_numRecordsSend{tm_id="a",job_id="` + jobID + `",task_name="win -> Sink: out {1}",subtask_index="1",operator_id="s"} 1.5e+06` + "\n" +
		`flink_taskmanager_job_task_operator_numRecordsSend{tm_id="a",job_id="` + jobID + `",task_name="win -> Sink: out {1}",subtask_index="1",operator_id="s"} 1.5e+06` + "\n" +
		`flink_taskmanager_job_task_operator_numRecordsSend{tm_id="a",job_id="other",subtask_index="0",operator_id="s"} 7` + "\n" +
		`flink_taskmanager_job_task_numRecordsIn{tm_id="a",job_id="` + jobID + `",subtask_index="0"} 99` + "\n"
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
	defer h.Close()
	r := NewREST(h.URL, time.Minute)
	defer r.Close()
	if n, ok, err := r.Sent(t.Context(), jobID); n != 1500010 || !ok || err != nil {
		t.Errorf("%d %v %v", n, ok, err)
	}
	if n, ok, err := r.Sent(t.Context(), "none"); n != 0 || ok || err != nil {
		t.Errorf("%d %v %v", n, ok, err)
	}
}
