package rig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thalweg/thalweg/test/rig"
)

func TestVariantsHaveATextForm(t *testing.T) {
	for text, want := range map[string]rig.Variant{
		"":                 {},
		"simple":           {},
		"kerberos":         {Kerberos: true, RPC: "authentication", Data: "authentication"},
		"kerberos,privacy": {Kerberos: true, RPC: "privacy", Data: "privacy"},
		"rm-ha":            {RMHA: true},
		"kerberos, nn-ha":  {Kerberos: true, RPC: "authentication", Data: "authentication", NNHA: true},
		"kerberos,data=integrity+authentication,spnego": {Kerberos: true, RPC: "authentication", Data: "integrity,authentication", SPNEGO: true},
		"kerberos,encrypt,aes,short-tokens":             {Kerberos: true, RPC: "authentication", Data: "authentication", Encrypt: true, AES: true, ShortTokens: true},
	} {
		v, err := rig.ParseVariant(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, v); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		if again, err := rig.ParseVariant(v.String()); err != nil || again != v {
			t.Errorf("%q is written as %q, which is %v, %v", text, v, again, err)
		}
	}
	for text, word := range map[string]string{"kerberos,privat": "privat", "privacy": "kerberos", "kerberos,rpc=all": "all", "spnego,rm-ha": "kerberos"} {
		if _, err := rig.ParseVariant(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v, want an error with %q", text, err, word)
		}
	}
}
