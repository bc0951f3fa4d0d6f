package kerberos

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/messages"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// A refusal of the KDC becomes one line that says what to do, which waiting does not help.
func TestRefusals(t *testing.T) {
	cfg := loaded(t, "[libdefaults]\ndefault_realm = EXAMPLE.TEST\n")
	alice, err := cfg.parsePrincipal("alice")
	if err != nil {
		t.Fatal(err)
	}
	keys := &keyring{path: "/etc/alice.keytab"}
	for _, tc := range []struct {
		code    int32
		clock   time.Duration // of the KDC, beside ours
		service string
		want    []string
	}{
		{errorcode.KRB_AP_ERR_SKEW, 10 * time.Minute, "", []string{"10m0s behind", "set it"}},
		{errorcode.KRB_AP_ERR_SKEW, -time.Hour, "nn/x@EXAMPLE.TEST", []string{"1h0m0s ahead of"}},
		{errorcode.KRB_AP_ERR_TKT_EXPIRED, 0, "nn/x@EXAMPLE.TEST", []string{"alice@EXAMPLE.TEST", "run kinit"}},
		{errorcode.KDC_ERR_PREAUTH_FAILED, 0, "", []string{"/etc/alice.keytab", "ktadd -k /etc/alice.keytab alice@EXAMPLE.TEST"}},
		{errorcode.KDC_ERR_ETYPE_NOSUPP, 0, "", []string{"aes256-cts-hmac-sha1-96", "permitted_enctypes"}},
		{errorcode.KDC_ERR_ETYPE_NOSUPP, 0, "nn/x@EXAMPLE.TEST", []string{"nn/x@EXAMPLE.TEST", "default_tgs_enctypes"}},
		{errorcode.KDC_ERR_CLIENT_REVOKED, 0, "", []string{"locked", "administrator of realm EXAMPLE.TEST"}},
		{errorcode.KDC_ERR_POLICY, 0, "nn/x@EXAMPLE.TEST", []string{"for nn/x@EXAMPLE.TEST", "KDC_ERR_POLICY"}},
	} {
		k := keys
		if tc.service != "" {
			k = nil
		}
		err := cfg.explain(messages.KRBError{ErrorCode: tc.code, STime: time.Now().Add(tc.clock)}, alice, tc.service, k)
		if !errors.Is(err, ipc.ErrLogin) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: %v", tc.code, err)
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%d: %q is not in %v", tc.code, w, err)
			}
		}
	}
}

func TestProfiles(t *testing.T) {
	for text, want := range map[string]string{
		"default_realm = X\n":                                "want a [section] first",
		"[libdefaults]\nclockskew = soon\n":                  "clockskew",
		"[libdefaults]\nforwardable = perhaps\n":             "forwardable",
		"[realms]\nX = {\n kdc = a b\n}\n":                   "kdc = a b",
		"[realms]\nX = {\n kdc = a\n":                        "never closed",
		"[realms]\n}\n":                                      "} without {",
		"[libdefaults]\npermitted_enctypes = camellia\n":     "aes256-cts-hmac-sha1-96",
		"[libdefaults]\npermitted_enctypes = arcfour-hmac\n": "AES",
		"[libdefaults]\nudp_preference_limit = a lot\n":      "udp_preference_limit",
		"include /nowhere/else.conf\n":                       "/nowhere/else.conf",
	} {
		_, err := LoadConfigFiles(writeFile(t, "krb5.conf", text))
		if !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c := loaded(t, "# a comment\n[libdefaults]\n\tdefault_realm = \"A.TEST\"\n default_realm = B.TEST\n[domain_realm]\n .a.test = A.TEST\n host.a.test = C.TEST\n"+
		"[realms]\nA.TEST = {\n kdc = one\n kdc = tcp/two:1088\n kdc = [::1]:89\n auth_to_local = {\n  x = y\n }\n}*\n[realms]\nA.TEST = {\n kdc = three\n}\n")
	var got []string
	for _, k := range c.realms["A.TEST"] {
		got = append(got, k.protocol+" "+k.addr)
	}
	if strings.Join(got, ", ") != " one:88, tcp two:1088,  [::1]:89,  three:88" {
		t.Errorf("KDCs %q", got)
	}
	for host, want := range map[string]string{"host.a.test": "C.TEST", "Other.A.Test.": "A.TEST", "elsewhere": "A.TEST"} {
		if got := c.RealmOf(host); got != want {
			t.Errorf("realm of %s: %s, want %s", host, got, want)
		}
	}
}
