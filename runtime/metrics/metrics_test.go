package metrics

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrometheusText(t *testing.T) {
	var r Registry
	task := Scope{Host: "nm1", TaskManagerID: "container_1", JobID: "j1", JobName: "totals", VertexID: "v1", TaskName: "Source: \"orders\"", Subtask: 1}
	op := task
	op.OperatorName, op.OperatorID = "map", "o1"
	g, o, jm := r.Group(task), r.Group(op), r.Group(Scope{Host: "am"})
	g.Counter("numRecordsIn").Add(41)
	g.Counter("numRecordsIn").Inc()
	o.Gauge("KafkaSourceReader.currentOffset", func() float64 { return 7 })
	o.Gauge("broken", func() float64 { panic("no") })
	jm.Gauge("numRunningJobs", func() float64 { return 1 })
	var b strings.Builder
	if err := WritePrometheus(&b, r.Collect()); err != nil {
		t.Fatal(err)
	}
	want := `# TYPE flink_jobmanager_numRunningJobs gauge
flink_jobmanager_numRunningJobs{host="am"} 1
# TYPE flink_taskmanager_job_task_numRecordsIn counter
flink_taskmanager_job_task_numRecordsIn{host="nm1",tm_id="container_1",job_id="j1",job_name="totals",task_id="v1",task_name="Source: \"orders\"",subtask_index="1",task_attempt_num="0"} 42
# TYPE flink_taskmanager_job_task_operator_KafkaSourceReader_currentOffset gauge
flink_taskmanager_job_task_operator_KafkaSourceReader_currentOffset{host="nm1",tm_id="container_1",job_id="j1",job_name="totals",task_id="v1",task_name="Source: \"orders\"",subtask_index="1",task_attempt_num="0",operator_id="o1",operator_name="map"} 7
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	o.Close()
	if n := len(r.Collect()); n != 2 {
		t.Errorf("%d samples after a group was closed, want 2", n)
	}
}

func TestIdentifierFollowsFlinksScopes(t *testing.T) {
	s := Scope{Host: "nm1.example", TaskManagerID: "c1", JobName: "totals", JobID: "j", TaskName: "Map", Subtask: 2}
	if got := s.Identifier(); got != "nm1_example.taskmanager.c1.totals.Map.2" {
		t.Error(got)
	}
	s.OperatorName = "filter"
	if got := s.Identifier(); got != "nm1_example.taskmanager.c1.totals.filter.2" {
		t.Error(got)
	}
	if got := (&Scope{Host: "am", JobName: "totals"}).Identifier(); got != "am.jobmanager.totals" {
		t.Error(got)
	}
}

func TestMeterRate(t *testing.T) {
	var m Meter
	at := time.Unix(100, 0)
	m.Rate(at)
	m.Add(50)
	if r := m.Rate(at.Add(500 * time.Millisecond)); r != 0 {
		t.Errorf("rate within the first second: %v", r)
	}
	if r := m.Rate(at.Add(2 * time.Second)); r != 25 {
		t.Errorf("rate %v, want 25", r)
	}
}

func BenchmarkCounter(b *testing.B) {
	var c Counter
	for b.Loop() {
		c.Add(1)
	}
}
