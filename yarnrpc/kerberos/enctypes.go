package kerberos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
)

// aes are the encryption types that messages can be protected with here, in MIT krb5's order: RFC 4121 has no other that is in use.
var aes = []int32{
	etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA1_96,
	etypeID.AES256_CTS_HMAC_SHA384_192, etypeID.AES128_CTS_HMAC_SHA256_128,
}

// families are MIT krb5's names for several types at once.
var families = map[string][]int32{
	"aes": aes, "default": aes, "rc4": {etypeID.RC4_HMAC}, "des3": {etypeID.DES3_CBC_SHA1_KD}, "camellia": nil, "des": nil,
}

// parseTypes reads a list of encryption types: names and families, with a - before it what is taken out of the list again.
// Names that are not known here are passed over, as by MIT krb5. The result is nil when the list is not set.
func parseTypes(list string) []int32 {
	var out []int32
	words := strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
	for _, w := range words {
		name, remove := strings.CutPrefix(w, "-")
		types, ok := families[name]
		if !ok {
			if id := etypeID.EtypeSupported(name); id != 0 {
				types = []int32{id}
			}
		}
		for _, id := range types {
			switch {
			case remove:
				out = slices.DeleteFunc(out, func(o int32) bool { return o == id })
			case !slices.Contains(out, id):
				out = append(out, id)
			}
		}
	}
	if len(words) > 0 && out == nil {
		out = []int32{}
	}
	return out
}

// encryptionTypes sets the lists of gokrb5, which by itself knows the SHA-2 types in no list that is not given.
//
// Source: MIT krb5 doc, krb5.conf: default_tkt_enctypes and default_tgs_enctypes default to permitted_enctypes.
func (c *Config) encryptionTypes(lib []*node) error {
	permitted := parseTypes(first(lib, "permitted_enctypes"))
	list := func(key string) ([]int32, error) {
		l := parseTypes(first(lib, key))
		switch {
		case l == nil && permitted == nil:
			return slices.Clone(aes), nil
		case l == nil:
			l = permitted
		case permitted != nil:
			l = slices.DeleteFunc(l, func(id int32) bool { return !slices.Contains(permitted, id) })
		}
		if len(l) == 0 {
			return nil, fmt.Errorf("%s and permitted_enctypes leave no encryption type that is supported: name aes256-cts-hmac-sha1-96 or aes256-cts-hmac-sha384-192", key)
		}
		return slices.Clone(l), nil
	}
	tickets, err := list("default_tkt_enctypes")
	if err != nil {
		return err
	}
	services, err := list("default_tgs_enctypes")
	if err != nil {
		return err
	}
	services = slices.DeleteFunc(services, func(id int32) bool { return !slices.Contains(aes, id) })
	if len(services) == 0 {
		return fmt.Errorf("default_tgs_enctypes and permitted_enctypes leave no AES type, which connections need: name aes256-cts-hmac-sha1-96")
	}
	d := &c.krb.LibDefaults
	d.DefaultTktEnctypeIDs, d.DefaultTGSEnctypeIDs, d.PermittedEnctypeIDs = tickets, services, tickets
	return nil
}
