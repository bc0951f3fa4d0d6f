package kerberos

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// principal is who logs in.
type principal struct {
	name  types.PrincipalName
	realm string
}

// String is "alice@EXAMPLE.TEST" or "svc/host@EXAMPLE.TEST".
func (p principal) String() string { return p.name.PrincipalNameString() + "@" + p.realm }

// parsePrincipal reads name[/instance][@REALM].
func (c *Config) parsePrincipal(s string) (principal, error) {
	name, realm, _ := strings.Cut(s, "@")
	if realm == "" {
		realm = c.DefaultRealm()
	}
	parts := strings.Split(name, "/")
	if slices.Contains(parts, "") || strings.Contains(realm, "@") {
		return principal{}, loginError("principal %q: want name@REALM or name/host@REALM: check %s", s, KeyPrincipal)
	}
	if realm == "" {
		return principal{}, loginError("principal %q names no realm, and %s has no default_realm: write name@REALM in %s", s, c.where(), KeyPrincipal)
	}
	return principal{types.PrincipalName{NameType: nametype.KRB_NT_PRINCIPAL, NameString: parts}, realm}, nil
}

// keyring is a keytab with its path.
type keyring struct {
	path   string
	keytab *keytab.Keytab // secret
}

// readKeytab reads a keytab file, with FILE: before the path or without.
func readKeytab(path string) (_ *keyring, err error) {
	path = strings.TrimPrefix(path, "FILE:")
	b, err := os.ReadFile(path) //nolint:gosec // the user's choice
	if err != nil {
		return nil, loginError("keytab: %w: check %s", err, KeyKeytab)
	}
	damaged := fmt.Errorf("kerberos: %w: %s is no keytab, or a damaged one: check %s, export it again (kadmin: ktadd -k)", ipc.ErrLogin, path, KeyKeytab)
	defer func() {
		if recover() != nil { // gokrb5 does not check lengths everywhere
			err = damaged
		}
	}()
	kt := keytab.New()
	if kt.Unmarshal(b) != nil { // its errors quote the file
		return nil, damaged
	}
	return &keyring{path, kt}, nil
}

// types are the encryption types of the principal's keys.
func (k *keyring) types(p principal) []int32 {
	var out []int32
	for _, e := range k.keytab.Entries {
		if e.Principal.Realm == p.realm && slices.Equal(e.Principal.Components, p.name.NameString) && !slices.Contains(out, e.Key.KeyType) {
			out = append(out, e.Key.KeyType)
		}
	}
	return out
}

// holds lists the principals in the keytab.
func (k *keyring) holds() []string {
	var out []string
	for _, e := range k.keytab.Entries {
		out = append(out, strings.Join(e.Principal.Components, "/")+"@"+e.Principal.Realm)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// check says when the keytab cannot log p in.
func (k *keyring) check(p principal) error {
	if len(k.types(p)) > 0 {
		return nil
	}
	holds := k.holds()
	const most = 8
	more := ""
	if len(holds) > most {
		holds, more = holds[:most], " and others"
	}
	what := "is empty"
	if len(holds) > 0 {
		what = "holds " + strings.Join(holds, ", ") + more
	}
	return loginError("keytab %s holds no key of %s, it %s: set %s to one of them, or %s to another file", k.path, p, what, KeyPrincipal, KeyKeytab)
}

// order puts those types first that the principal has keys of.
func (k *keyring) order(p principal, ids []int32) []int32 {
	have := k.types(p)
	var out, rest []int32
	for _, id := range ids {
		if slices.Contains(have, id) {
			out = append(out, id)
		} else {
			rest = append(rest, id)
		}
	}
	return append(out, rest...)
}
