package folder_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/am/folder"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// What a savepoint's folder may be, whoever asks: one of the cluster's file systems, never a node's disk.
func TestTarget(t *testing.T) {
	reg := &fs.Registry{}
	reg.Register("hdfs", func(context.Context, *url.URL) (fs.FileSystem, error) { return mem.New("nn"), nil })
	h := conf.FromMap(map[string]string{"fs.defaultFS": "hdfs://nn:8020"})
	for in, want := range map[string]string{
		"/sp": "hdfs://nn:8020/sp", "hdfs:///sp": "hdfs://nn:8020/sp", "/a#b%20 c": "hdfs://nn:8020/a#b%20 c", "hdfs:///a#b%20 c": "hdfs://nn:8020/a#b%20 c", "hdfs:/sp?x": "hdfs://nn:8020/sp?x", "hdfs:sp": "", "hdfs://other/sp": "hdfs://other/sp", "file:///sp": "", "ftp://h/sp": "", "sp": "",
	} {
		got, err := folder.Target(t.Context(), "target-directory", in, h, reg)
		var e *folder.Error
		if want == "" && (!errors.As(err, &e) || e.Key != "target-directory" || !strings.Contains(e.Text, in)) || want != "" && (err != nil || got != want) {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
}
