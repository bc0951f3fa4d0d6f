package kerberos

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/messages"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// KeyPrincipal and KeyKeytab are the configuration keys that messages name.
const (
	KeyPrincipal = "security.kerberos.login.principal"
	KeyKeytab    = "security.kerberos.login.keytab"
)

func loginError(format string, args ...any) error {
	return fmt.Errorf("kerberos: %w: %w", ipc.ErrLogin, fmt.Errorf(format, args...))
}

// explain says what a KDC's refusal means to who configured the login. service is empty for a refused login, for which kt is not nil.
func (c *Config) explain(err error, p principal, service string, kt *keyring) error {
	var refusal messages.KRBError
	if !errors.As(err, &refusal) {
		return err
	}
	text := errorcode.Lookup(refusal.ErrorCode)
	if refusal.EText != "" {
		text += " (" + refusal.EText + ")"
	}
	switch refusal.ErrorCode {
	case errorcode.KDC_ERR_C_PRINCIPAL_UNKNOWN, errorcode.KDC_ERR_WRONG_REALM:
		return loginError("the KDC of realm %s does not know %s: check %s, and the realm behind its @", p.realm, p, KeyPrincipal)
	case errorcode.KDC_ERR_S_PRINCIPAL_UNKNOWN:
		return loginError("the KDC knows no service %s: check the principal that Hadoop's configuration names for it, and [domain_realm] in %s", service, c.where())
	case errorcode.KRB_AP_ERR_SKEW:
		return c.skewError(p.realm, time.Since(refusal.STime))
	case errorcode.KRB_AP_ERR_TKT_EXPIRED:
		return loginError("the ticket of %s has ended: run kinit", p)
	case errorcode.KDC_ERR_PREAUTH_FAILED, errorcode.KRB_AP_ERR_BAD_INTEGRITY:
		if kt != nil {
			return loginError("the key of %s in %s is not the KDC's, which has a newer one: export it again (kadmin: ktadd -k %s %s)", p, kt.path, kt.path, p)
		}
	case errorcode.KDC_ERR_ETYPE_NOSUPP:
		if service == "" {
			return loginError("the KDC of realm %s has no key of %s of the encryption types %s: check permitted_enctypes and default_tkt_enctypes in %s",
				p.realm, p, typeNames(c.krb.LibDefaults.DefaultTktEnctypeIDs), c.where())
		}
		return loginError("the KDC has no common encryption type of %s for %s: check permitted_enctypes and default_tgs_enctypes in %s, and the keys of the service",
			typeNames(c.krb.LibDefaults.DefaultTGSEnctypeIDs), service, c.where())
	case errorcode.KDC_ERR_CLIENT_REVOKED, errorcode.KDC_ERR_NAME_EXP, errorcode.KDC_ERR_KEY_EXPIRED:
		return loginError("the account of %s is locked or has ended: %s: ask the administrator of realm %s", p, text, p.realm)
	}
	if service != "" {
		return loginError("ticket of %s for %s: %s", p, service, text)
	}
	return loginError("ticket of %s: %s", p, text)
}

// skewError tells which way the clocks differ. ahead is how much ours is.
func (c *Config) skewError(realm string, ahead time.Duration) error {
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	return loginError("this machine's clock is %s %s that of the KDC of realm %s, more than %s: set it (chronyc makestep, or ntpdate)",
		ahead.Abs().Round(time.Second), word, realm, c.krb.LibDefaults.Clockskew)
}

func typeNames(ids []int32) string {
	if len(ids) == 0 {
		return "none"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		switch id {
		case etypeID.AES256_CTS_HMAC_SHA1_96:
			names[i] = "aes256-cts-hmac-sha1-96"
		case etypeID.AES128_CTS_HMAC_SHA1_96:
			names[i] = "aes128-cts-hmac-sha1-96"
		case etypeID.AES256_CTS_HMAC_SHA384_192:
			names[i] = "aes256-cts-hmac-sha384-192"
		case etypeID.AES128_CTS_HMAC_SHA256_128:
			names[i] = "aes128-cts-hmac-sha256-128"
		case etypeID.RC4_HMAC:
			names[i] = "arcfour-hmac"
		case etypeID.DES3_CBC_SHA1_KD:
			names[i] = "des3-cbc-sha1"
		default:
			names[i] = fmt.Sprint("number ", id)
		}
	}
	return strings.Join(names, ", ")
}
