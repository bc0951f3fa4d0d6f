package control

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/thalweg/thalweg/config"
)

var (
	attemptsOver = regexp.MustCompile(`^Application \S+ failed (\d+) times`)
	exitCode     = regexp.MustCompile(`exitCode: (-?\d+)`)
	attemptSays  = regexp.MustCompile(`Failing this attempt\.Diagnostics: (?:\[[^\]]*\])?\s*([^\n]+)`)
	lastOfStderr = regexp.MustCompile(`(?s)Last \d+ bytes of stderr :\n(.*?)\n(?:\n|\[|For more detailed output|$)`)
)

// Why says in one line why the application failed. When its master ended in order that is its own text. When the master's attempts died,
// YARN tells a long story, in which the last line that the master wrote, or how its container ended, is the reason.
// Source: RMAppImpl.getAppAttemptFailedDiagnostics, ContainerLaunch.handleContainerExitWithFailure.
func (a Application) Why() string {
	text := a.Diagnostics
	attempts := attemptsOver.FindStringSubmatch(text)
	if attempts == nil {
		return strings.TrimSpace(text)
	}
	why := "its container ended"
	if m := exitCode.FindStringSubmatch(text); m != nil {
		why += " with exit code " + m[1]
		if m[1] == "-103" || m[1] == "-104" { // ContainerExitStatus.KILLED_EXCEEDED_VMEM, _PMEM
			why = "its container was killed for memory: raise " + config.JobManagerMemory.Key
		}
	}
	if m := attemptSays.FindStringSubmatch(text); m != nil && !strings.HasPrefix(m[1], "Exception from container-launch") {
		why += ": " + m[1]
	}
	if m := lastOfStderr.FindStringSubmatch(text); m != nil {
		if lines := strings.Split(strings.TrimSpace(m[1]), "\n"); lines[0] != "" {
			why = lines[len(lines)-1]
		}
	}
	return fmt.Sprintf("the application master could not go on, %s attempts: %s (yarn logs -applicationId %s has more)", attempts[1], strings.TrimSpace(why), a.ID)
}
