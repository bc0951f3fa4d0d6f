package file

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
)

const splitVersion = 1

// split is a range of a file. Wire form: JSON.
type split struct {
	Version int    `json:"v"`
	Path    string `json:"path"` // a URI
	Start   int64  `json:"start"`
	End     int64  `json:"end"`  // exclusive; of unpacked bytes, so without limit, for packed files
	Next    int64  `json:"next"` // where the next line begins; -1 as long as nothing was read
	Size    int64  `json:"size"` // of the file when it was listed
	ModTime int64  `json:"modTime"`
}

func (s *split) id() string { return fmt.Sprintf("%s@%d", s.Path, s.Start) }

func (s *split) packed() bool { return packed(s.Path) }

func packed(path string) bool { return strings.HasSuffix(path, ".gz") }

func (s *split) encode() (connector.Split, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return connector.Split{}, fmt.Errorf("file: encode split %s: %w", s.id(), err)
	}
	return connector.Split{ID: s.id(), State: b}, nil
}

func decodeSplit(cs connector.Split) (*split, error) {
	s := &split{}
	if err := json.Unmarshal(cs.State, s); err != nil {
		return nil, fmt.Errorf("file: state of split %q is not valid: %w", cs.ID, err)
	}
	if s.Version != splitVersion {
		return nil, fmt.Errorf("file: split %q: version %d is not known to this build (it knows %d)", cs.ID, s.Version, splitVersion)
	}
	if s.Path == "" || s.Start < 0 || s.End < s.Start || s.Next < -1 || s.Size < 0 {
		return nil, fmt.Errorf("file: state of split %q is not valid", cs.ID)
	}
	return s, nil
}

// cut makes the splits of a file. Files without a byte have none.
func cut(uri string, size int64, mod time.Time, splitSize int64) []split {
	s := split{Version: splitVersion, Path: uri, End: math.MaxInt64, Next: -1, Size: size, ModTime: mod.UnixMilli()}
	if size == 0 {
		return nil
	}
	if packed(uri) {
		return []split{s}
	}
	var out []split
	for at := int64(0); at < size; {
		s.Start, s.End = at, size
		if size-at > splitSize+splitSize/10 { // no tiny last one
			s.End = at + max(splitSize, 1)
		}
		at = s.End
		out = append(out, s)
	}
	return out
}
