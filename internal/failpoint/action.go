package failpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Folder is the environment variable that names the folder, see the package's comment.
const Folder = "THALWEG_FAILPOINTS"

// Kind is what an Action does.
type Kind string

// The kinds of actions.
const (
	Kill       Kind = "kill"        // SIGKILL to the process itself
	KillParent Kind = "kill-parent" // SIGKILL to its parent: the TaskManager of a worker, the application master of a coordinator process
	Stop       Kind = "stop"        // SIGSTOP to itself; whoever armed it sends SIGCONT, to what may be a zombie then
	Sleep      Kind = "sleep"       // the goroutine waits there
	Fail       Kind = "error"       // Error returns an error; At does nothing
	NoSpace    Kind = "enospc"      // the same, and the error is that of a full disk
	IOError    Kind = "eio"         // the same, and the error is that of a broken disk
)

// Action is what happens at an armed point. Its text is "kind [duration] [hit=N]", such as "kill hit=3" or "sleep 5s".
type Action struct {
	Kind Kind
	For  time.Duration // of Sleep
	Hit  int           // the hit, of all processes together, that it happens at: 1 for the first
}

// String is the text that Parse reads.
func (a Action) String() string {
	s := string(a.Kind)
	if a.Kind == Sleep {
		s += " " + a.For.String()
	}
	if a.Hit > 1 {
		s += " hit=" + strconv.Itoa(a.Hit)
	}
	return s
}

// Parse reads the text of an action. Errors name what is wrong.
func Parse(text string) (Action, error) {
	f := strings.Fields(text)
	if len(f) == 0 {
		return Action{}, fmt.Errorf("failpoint: an action is empty: want %s, %s, %s, %s DURATION, %s, %s or %s", Kill, KillParent, Stop, Sleep, Fail, NoSpace, IOError)
	}
	a := Action{Kind: Kind(f[0]), Hit: 1}
	f = f[1:]
	switch a.Kind {
	case Kill, KillParent, Stop, Fail, NoSpace, IOError:
	case Sleep:
		var err error
		if len(f) == 0 {
			return a, fmt.Errorf("failpoint: action %q: how long?", text)
		}
		if a.For, err = time.ParseDuration(f[0]); err != nil || a.For <= 0 {
			return a, fmt.Errorf("failpoint: action %q: %q is no positive duration", text, f[0])
		}
		f = f[1:]
	default:
		return a, fmt.Errorf("failpoint: action %q: there is no %q", text, a.Kind)
	}
	for _, x := range f {
		n, ok := strings.CutPrefix(x, "hit=")
		var err error
		if a.Hit, err = strconv.Atoi(n); !ok || err != nil || a.Hit < 1 {
			return a, fmt.Errorf("failpoint: action %q: %q is not hit=N", text, x)
		}
	}
	return a, nil
}

// FileName is the name of a point's files.
func FileName(point string) string { return strings.ReplaceAll(point, "/", "~") }
