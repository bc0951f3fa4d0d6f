package memory

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
)

func TestPartsSumToTheContainer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := config.Configuration{}
		config.TaskManagerMemory.Set(c, config.Bytes(rapid.Int64Range(128<<20, 64<<30).Draw(t, "size")))
		config.JobManagerMemory.Set(c, config.Bytes(rapid.Int64Range(64<<20, 8<<30).Draw(t, "master")))
		config.StateBackend.Set(c, rapid.SampledFrom([]string{"hashmap", "pebble"}).Draw(t, "backend"))
		tm, err := ForTaskManager(c)
		if sum := tm.Process + tm.Margin + tm.Managed + tm.Network + tm.User; sum != tm.Container {
			t.Errorf("parts sum to %d of %d", sum, tm.Container)
		}
		if err == nil && (tm.User < minUser || tm.Worker != tm.Managed+tm.Network+tm.User) {
			t.Errorf("%+v", tm)
		}
		m := ForMaster(c)
		if m.Process+m.Job+m.Margin != m.Container || m.Process <= 0 || m.Job <= 0 {
			t.Errorf("%+v", m)
		}
	})
}

func TestTooSmallNamesTheKeys(t *testing.T) {
	c := config.Configuration{"taskmanager.memory.process.size": "128mb", "state.backend.type": "pebble", "taskmanager.memory.managed.fraction": "0.8"}
	_, err := ForTaskManager(c)
	if err == nil || !strings.Contains(err.Error(), "taskmanager.memory.process.size") || !strings.Contains(err.Error(), "managed.fraction") {
		t.Errorf("got %v", err)
	}
	c["taskmanager.memory.managed.fraction"] = "1.5"
	if _, err := ForTaskManager(c); err == nil {
		t.Error("a share above 1 is accepted")
	}
}

func TestEnvironment(t *testing.T) {
	c := config.Configuration{"taskmanager.numberOfTaskSlots": "3"}
	if WorkerCores(c) != 3 {
		t.Error("vcores do not follow the slots")
	}
	c["yarn.containers.vcores"] = "2"
	if e := Environment(1<<20, WorkerCores(c)); e["GOMEMLIMIT"] != "1048576" || e["GOMAXPROCS"] != "2" {
		t.Errorf("%v", e)
	}
}

// What does not fit is blamed on the key that the user gave.
func TestKeyOfTheCores(t *testing.T) {
	for want, c := range map[string]config.Configuration{
		"taskmanager.numberOfTaskSlots": {"taskmanager.numberOfTaskSlots": "99"},
		"yarn.containers.vcores":        {"taskmanager.numberOfTaskSlots": "2", "yarn.containers.vcores": "99"},
	} {
		if got := CoresKey(c); got != want || WorkerCores(c) != 99 {
			t.Errorf("%v: %s = %d, want %s", c, got, WorkerCores(c), want)
		}
	}
}

// A share of nonsense is an error, not a default, also where nobody has validated.
func TestManagedFractionIsChecked(t *testing.T) {
	for _, f := range []string{"7", "NaN", "-1", "1"} {
		c := config.Configuration{"state.backend.type": "pebble", "taskmanager.memory.managed.fraction": f}
		if _, err := ForTaskManager(c); err == nil || !strings.Contains(err.Error(), "taskmanager.memory.managed.fraction") {
			t.Errorf("%s: %v", f, err)
		}
	}
}
