package control_test

import (
	"strings"
	"testing"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// What YARN 3.4 says about an application whose master died in each attempt, and the line that a user is told.
func TestWhyAnApplicationFailed(t *testing.T) {
	const head = "Application application_1_0001 failed 2 times in previous 10000 milliseconds (global limit =4; local limit is =2) due to AM Container for appattempt_1_0001_000002 exited with  exitCode: "
	const tail = "\nFor more detailed output, check the application tracking page: http://h:8088/cluster/app/application_1_0001 Then click on links to logs of each attempt.\n. Failing the application."
	for _, c := range []struct{ name, text, want string }{
		{"its last words", head + "1\nFailing this attempt.Diagnostics: [2026-11-30 02:44:18.056]Exception from container-launch.\nContainer id: container_1_0001_02_000001\nExit code: 1\n\n" +
			"[2026-11-30 02:44:18.058]Container exited with a non-zero exit code 1. Error file: prelaunch.err.\nLast 4096 bytes of prelaunch.err :\nLast 4096 bytes of stderr :\n" +
			"am: no port can be bound\n\n\n[2026-11-30 02:44:18.058]Container exited with a non-zero exit code 1." + tail, "2 attempts: am: no port can be bound (yarn logs"},
		{"without words", head + "127\nFailing this attempt.Diagnostics: [2026-11-30 02:44:18.056]Exception from container-launch.\nExit code: 127\n" + tail,
			"its container ended with exit code 127 (yarn logs"},
		{"too much memory", head + "-104\nFailing this attempt.Diagnostics: [2026-11-30 02:44:18.056]Container [pid=1] is running 2 MB beyond the 'PHYSICAL' memory limit.\nDump of the process-tree" + tail,
			"its container was killed for memory: raise jobmanager.memory.process.size: Container [pid=1] is running 2 MB beyond the 'PHYSICAL' memory limit. (yarn logs"},
		{"its own text", " source: topic x does not exist\n", "source: topic x does not exist"},
	} {
		a := control.Application{ID: yarn.ApplicationID{ClusterTimestamp: 1, ID: 1}, Diagnostics: c.text}
		if got := a.Why(); !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}
