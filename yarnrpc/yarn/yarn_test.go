package yarn_test

import (
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

func TestTextForms(t *testing.T) {
	app := yarn.ApplicationID{ClusterTimestamp: 1700000000000, ID: 7}
	for got, want := range map[string]string{
		app.String(): "application_1700000000000_0007",
		yarn.AttemptID{App: app, Attempt: 2}.String():                                                  "appattempt_1700000000000_0007_000002",
		yarn.ContainerID{Attempt: yarn.AttemptID{App: app, Attempt: 2}, ID: 3}.String():                "container_1700000000000_0007_02_000003",
		yarn.ContainerID{Attempt: yarn.AttemptID{App: app, Attempt: 2}, ID: 17<<40 | 1234567}.String(): "container_e17_1700000000000_0007_02_1234567",
		yarn.ApplicationID{ClusterTimestamp: 1, ID: 12345}.String():                                    "application_1_12345",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestParseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		app := yarn.ApplicationID{ClusterTimestamp: rapid.Int64Min(0).Draw(t, "ts"), ID: rapid.Int32Min(0).Draw(t, "id")}
		att := yarn.AttemptID{App: app, Attempt: rapid.Int32Min(0).Draw(t, "attempt")}
		ct := yarn.ContainerID{Attempt: att, ID: rapid.Int64Min(0).Draw(t, "container")}
		if back, err := yarn.ParseApplicationID(app.String()); err != nil || back != app {
			t.Fatalf("%v: %v %v", app, back, err)
		}
		if back, err := yarn.ParseAttemptID(att.String()); err != nil || back != att {
			t.Fatalf("%v: %v %v", att, back, err)
		}
		if back, err := yarn.ParseContainerID(ct.String()); err != nil || back != ct {
			t.Fatalf("%v: %v %v", ct, back, err)
		}
		if yarn.ContainerIDOf(ct.Proto()) != ct {
			t.Fatalf("%v through its message", ct)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{"", "application_1", "application_1_2_3", "app_1_2", "application_-1_2", "application_1_99999999999", "application_1_x", "container_1_2_3", "container_e_1_2_3_4", "container_e1_1_2_3", "container_1_2_3_1099511627776"} {
		if _, err := yarn.ParseApplicationID(s); !errors.Is(err, yarn.ErrMalformed) {
			t.Errorf("application %q: %v", s, err)
		}
		if _, err := yarn.ParseContainerID(s); !errors.Is(err, yarn.ErrMalformed) {
			t.Errorf("container %q: %v", s, err)
		}
		if _, err := yarn.ParseNodeID(s); !errors.Is(err, yarn.ErrMalformed) {
			t.Errorf("node %q: %v", s, err)
		}
	}
	if n, err := yarn.ParseNodeID("nm3.example:45454"); err != nil || n.Host != "nm3.example" || n.Port != 45454 || n.String() != "nm3.example:45454" {
		t.Errorf("%v %v", n, err)
	}
}

func TestResourceOf(t *testing.T) {
	r := yarn.Resource{MemoryMB: 10, VCores: 2}
	if got := yarn.ResourceOf(r.Proto()); got != r {
		t.Errorf("%v", got)
	}
	if !r.Fits(yarn.Resource{MemoryMB: 10, VCores: 2}) || r.Fits(yarn.Resource{MemoryMB: 100, VCores: 1}) {
		t.Error("Fits")
	}
	if yarn.ResourceOf(nil) != (yarn.Resource{}) {
		t.Error("nil")
	}
}

// The identifiers of tokens that a ResourceManager of Hadoop 3.4.2 gave out.
func TestRecordedIdentifiers(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	att := yarn.AttemptID{App: yarn.ApplicationID{ClusterTimestamp: 1795981332911, ID: 3}, Attempt: 1}
	am, err := yarn.DecodeAMRMIdentifier(read("amrm-identifier.bin"))
	if err != nil || yarn.AttemptIDOf(am.GetAppAttemptId()) != att {
		t.Errorf("%v %v", am, err)
	}
	nm, err := yarn.DecodeNMIdentifier(read("nm-identifier.bin"))
	if err != nil || yarn.NodeIDOf(nm.GetNodeId()).String() != "localhost:27041" || nm.GetAppSubmitter() != "root" {
		t.Errorf("%v %v", nm, err)
	}
	ct, err := yarn.DecodeContainerIdentifier(read("container-identifier.bin"))
	if err != nil || yarn.ContainerIDOf(ct.GetContainerId()).String() != "container_e01_1795981332911_0003_01_000001" ||
		yarn.ResourceOf(ct.GetResource()).MemoryMB != 64 || ct.GetRmIdentifier() != 1795981332911 || ct.GetContainerType() != yarnpb.ContainerTypeProto_TASK {
		t.Errorf("%v %v", ct, err)
	}
	for _, m := range []interface{ GetKeyId() int32 }{am, nm} {
		if m.GetKeyId() == -1 {
			t.Error("no key id")
		}
	}
}

func FuzzParseContainerID(f *testing.F) {
	f.Add("container_e02_1700000000000_0001_01_000001")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := yarn.ParseContainerID(s)
		if err != nil {
			return
		}
		if back, err := yarn.ParseContainerID(id.String()); err != nil || back != id {
			t.Fatalf("%q is %v, back %v %v", s, id, back, err)
		}
	})
}

func FuzzIdentifiers(f *testing.F) {
	for _, n := range []string{"amrm-identifier.bin", "nm-identifier.bin", "container-identifier.bin"} {
		b, err := os.ReadFile("testdata/" + n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = yarn.DecodeAMRMIdentifier(b)
		_, _ = yarn.DecodeNMIdentifier(b)
		_, _ = yarn.DecodeContainerIdentifier(b)
		_, _ = yarn.DecodeRMDelegationIdentifier(b)
	})
}
