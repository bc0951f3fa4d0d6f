package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/state"
)

// Whatever lies in the folders of the copies, under whatever name, a restore reads what the checkpoint has.
func FuzzCopies(f *testing.F) {
	f.Add("chk-1", "", []byte("other content"))
	f.Add("chk--1", "x", []byte{})
	f.Add("chk-99999999999999999999", ".copy-x", []byte{1})
	f.Add("..", "chk-1", []byte{1})
	f.Fuzz(func(t *testing.T, dir, name string, content []byte) {
		r := newRig(t, t.TempDir())
		k := r.write(1, state.Exclusive, data(300, 1))
		if name == "" { // in place of the file's copy
			name = filepath.Base(k.ref.Name)
		}
		if to := filepath.Join(r.store.dirs[0], dir, name); strings.HasPrefix(to, r.store.dirs[0]+"/") && !strings.ContainsRune(to, 0) {
			if os.MkdirAll(filepath.Dir(to), 0o700) == nil {
				_ = os.WriteFile(to, content, 0o600) // a name that the disk does not take is not there
			}
		}
		src := r.source()
		if err := r.read(src, k); err != nil {
			t.Fatal(err)
		}
		src.(state.LocalSource).Link(t.Context(), k.ref, filepath.Join(t.TempDir(), "x"))
		r.store.Completed(2)
		r.store.Close()
	})
}
