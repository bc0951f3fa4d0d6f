package failpoint

import (
	"testing"
	"time"
)

func TestActionsAreReadAsTheyAreWritten(t *testing.T) {
	for _, a := range []Action{{Kind: Kill, Hit: 1}, {Kind: KillParent, Hit: 2}, {Kind: Stop, Hit: 1}, {Kind: Sleep, For: 5 * time.Second, Hit: 7}, {Kind: Fail, Hit: 1}, {Kind: NoSpace, Hit: 1}, {Kind: IOError, Hit: 1}} {
		got, err := Parse(a.String())
		if err != nil || got != a {
			t.Errorf("Parse(%q) = %+v, %v", a, got, err)
		}
	}
	for _, bad := range []string{"", "burn", "sleep", "sleep 0s", "sleep soon", "kill 3", "kill hit=0", "kill hit=x"} {
		if a, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", bad, a)
		}
	}
}
