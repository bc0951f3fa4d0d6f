package ha

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
)

// Whatever stands in a file of the store, reading it ends: with what it says, or with ErrDamaged and the file's name.
func FuzzRecords(f *testing.F) {
	f.Add(uint8(0), []byte(`{"id":"01000000000000000000000000000000","name":"n","data":"eA=="}`))
	f.Add(uint8(1), []byte(`{"state":"FINISHED"`))
	f.Add(uint8(2), []byte(`{"dir":"mem://x","numbered":true}`))
	f.Add(uint8(3), []byte(`{"epoch":"one"}`))
	f.Add(uint8(4), []byte{0xff})
	id := jobID(1)
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		ctx := t.Context()
		f := mem.New("ha")
		s := NewFileStore(f, "/ha", zerolog.Nop())
		acquire(t, s, 1)
		must(t, s.PutJob(ctx, Job{ID: id, Name: "n", Data: []byte("x")}))
		open(t, s, id, Pointer{}, 1)
		must(t, s.StorePointer(ctx, id, Pointer{ID: 1, Dir: "mem://ckp/chk-1"}))
		must(t, s.PublishLeader(ctx, Leader{Address: "a"}))
		must(t, s.StoreRequirements(ctx, id, []byte("r")))
		infos, err := f.List(ctx, s.jobDir(id))
		must(t, err)
		pointer := ""
		for _, i := range infos {
			if strings.Contains(i.Path, "/"+dirPrefix) {
				pointer = i.Path
			}
		}
		file := []string{s.jobFile(id), s.resultFile(id), pointer, "/ha/" + leaderPrefix + "1", s.jobDir(id) + "/" + requirementsPrefix + "1"}[which%5]
		must(t, fs.WriteFile(ctx, f, file, content, true))
		look := func(err error) {
			if err != nil && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), file)) {
				t.Fatalf("%s: %v", file, err)
			}
		}
		_, err = s.Jobs(ctx)
		look(err)
		_, err = s.Results(ctx)
		look(err)
		_, err = s.Pointer(ctx, id)
		look(err)
		_, _, err = s.leader(ctx, 1)
		look(err)
		if got, err := s.Requirements(ctx, id); err != nil || which%5 == 4 && string(got) != string(content) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}
