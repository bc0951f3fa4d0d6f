package kerberos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/iana/patype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// maxHops bounds the realms on the way to a service in another one.
const maxHops = 8

// ticket is a ticket with the key that goes with it.
type ticket struct {
	raw        messages.Ticket
	key        types.EncryptionKey // secret
	start, end time.Time
	renewTill  time.Time // zero when it cannot be renewed
}

func newTicket(raw messages.Ticket, p messages.EncKDCRepPart) ticket {
	t := ticket{raw: raw, key: p.Key, start: p.StartTime, end: p.EndTime, renewTill: p.RenewTill}
	if t.start.IsZero() {
		t.start = p.AuthTime
	}
	return t
}

// after is the time when a part of the ticket's life is over.
func (t ticket) after(part float64) time.Time {
	return t.start.Add(time.Duration(part * float64(t.end.Sub(t.start))))
}

func tgsName(realm string) types.PrincipalName {
	return types.PrincipalName{NameType: nametype.KRB_NT_SRV_INST, NameString: []string{"krbtgt", realm}}
}

// login asks for a ticket-granting ticket with the keys of a keytab.
//
// Errors: *UnreachableError, ipc.ErrLogin. Source: RFC 4120 section 3.1.
func (c *Config) login(ctx context.Context, p principal, kt *keyring) (ticket, error) {
	cfg := *c.krb // with the types that the keytab has keys of before all others, so that the KDC takes one of them
	cfg.LibDefaults.DefaultTktEnctypeIDs = kt.order(p, c.krb.LibDefaults.DefaultTktEnctypeIDs)
	req, err := messages.NewASReqForTGT(p.realm, &cfg, p.name)
	if err != nil {
		return ticket{}, loginError("ask for a ticket of %s: %w", p, err)
	}
	if c.krb.LibDefaults.RenewLifetime > 0 {
		req.ReqBody.RTime = time.Now().UTC().Add(c.krb.LibDefaults.RenewLifetime)
	}
	req.PAData = append(req.PAData, types.PAData{PADataType: patype.PA_REQ_ENC_PA_REP})
	answer, err := c.exchange(ctx, p.realm, req.Marshal)
	var refusal messages.KRBError
	if errors.As(err, &refusal) && refusal.ErrorCode == errorcode.KDC_ERR_PREAUTH_REQUIRED {
		if err = preauthenticate(&req, refusal, p, kt); err != nil {
			return ticket{}, err
		}
		answer, err = c.exchange(ctx, p.realm, req.Marshal)
	}
	if err != nil {
		return ticket{}, c.explain(err, p, "", kt)
	}
	var rep messages.ASRep
	if err := rep.Unmarshal(answer); err != nil {
		return ticket{}, loginError("answer of the KDC of %s: %w", p.realm, err)
	}
	creds := credentials.NewFromPrincipalName(p.name, p.realm).WithKeytab(kt.keytab)
	if _, err := rep.Verify(&cfg, creds, req); err != nil {
		if at := rep.DecryptedEncPart.AuthTime; !at.IsZero() {
			if skew := time.Since(at); skew.Abs() > c.krb.LibDefaults.Clockskew {
				return ticket{}, c.skewError(p.realm, skew)
			}
		}
		return ticket{}, loginError("ticket of %s: the keytab %s does not open the KDC's answer: %w: export it again (kadmin: ktadd -k %s %s)", p, kt.path, err, kt.path, p)
	}
	return newTicket(rep.Ticket, rep.DecryptedEncPart), nil
}

// preauthenticate adds the time, encrypted with the key of the keytab that the KDC likes best, to a request.
func preauthenticate(req *messages.ASReq, refusal messages.KRBError, p principal, kt *keyring) error {
	var methods types.PADataSequence
	if err := methods.Unmarshal(refusal.EData); err != nil {
		return loginError("answer of the KDC of %s: %w", p.realm, err)
	}
	var wanted []int32
	for _, m := range methods {
		if m.PADataType == patype.PA_ETYPE_INFO2 {
			info, err := m.GetETypeInfo2()
			if err != nil {
				return loginError("answer of the KDC of %s: %w", p.realm, err)
			}
			for _, i := range info {
				wanted = append(wanted, i.EType)
			}
		}
	}
	for _, id := range wanted {
		key, version, err := kt.keytab.GetEncryptionKey(p.name, p.realm, 0, id)
		if err != nil {
			continue
		}
		now, err := types.GetPAEncTSEncAsnMarshalled()
		if err != nil {
			return loginError("ask for a ticket of %s: %w", p, err)
		}
		sealed, err := crypto.GetEncryptedData(now, key, keyusage.AS_REQ_PA_ENC_TIMESTAMP, version)
		if err != nil {
			return loginError("ask for a ticket of %s: %w", p, err)
		}
		b, err := sealed.Marshal()
		if err != nil {
			return loginError("ask for a ticket of %s: %w", p, err)
		}
		req.PAData = append(req.PAData, types.PAData{PADataType: patype.PA_ENC_TIMESTAMP, PADataValue: b})
		return nil
	}
	return loginError("keytab %s holds keys of %s of other encryption types (%s) than the KDC wants (%s): export it again (kadmin: ktadd -k %s %s)",
		kt.path, p, typeNames(kt.types(p)), typeNames(wanted), kt.path, p)
}

// serviceTicket asks for a ticket for a service with a ticket-granting ticket, in other realms by way of those between.
//
// Errors: *UnreachableError, ipc.ErrLogin. Source: RFC 4120 section 3.3, RFC 6806 section 8.
func (c *Config) serviceTicket(ctx context.Context, p principal, tgt ticket, service types.PrincipalName, realm string) (ticket, error) {
	for range maxHops {
		here := tgt.raw.SName.NameString[len(tgt.raw.SName.NameString)-1]
		want := service
		if here != realm {
			want = tgsName(realm)
		}
		t, err := c.grant(ctx, p, tgt, want, here, false)
		if err != nil {
			return ticket{}, err
		}
		if t.raw.SName.NameString[0] != "krbtgt" || service.NameString[0] == "krbtgt" {
			return t, nil
		}
		tgt = t // on the way, or a referral
		if next := t.raw.SName.NameString[len(t.raw.SName.NameString)-1]; here == realm {
			realm = next
		}
	}
	return ticket{}, loginError("ticket for %s@%s: more than %d realms on the way", service.PrincipalNameString(), realm, maxHops)
}

// renew asks for a ticket like t that lasts longer.
func (c *Config) renew(ctx context.Context, p principal, t ticket) (ticket, error) {
	return c.grant(ctx, p, t, t.raw.SName, t.raw.Realm, true)
}

func (c *Config) grant(ctx context.Context, p principal, tgt ticket, service types.PrincipalName, realm string, renew bool) (ticket, error) {
	name := service.PrincipalNameString() + "@" + realm
	req, err := messages.NewTGSReq(p.name, realm, c.krb, tgt.raw, tgt.key, service, renew)
	if err != nil {
		return ticket{}, loginError("ask for a ticket for %s: %w", name, err)
	}
	answer, err := c.exchange(ctx, realm, req.Marshal)
	if err != nil {
		return ticket{}, c.explain(err, p, name, nil)
	}
	var rep messages.TGSRep
	if err := rep.Unmarshal(answer); err != nil {
		return ticket{}, loginError("answer of the KDC of %s: %w", realm, err)
	}
	if err := rep.DecryptEncPart(tgt.key); err != nil {
		return ticket{}, loginError("answer of the KDC of %s: %w", realm, err)
	}
	if _, err := rep.Verify(c.krb, req); err != nil {
		return ticket{}, loginError("ticket for %s: %w", name, err)
	}
	return newTicket(rep.Ticket, rep.DecryptedEncPart), nil
}

func (c *Config) exchange(ctx context.Context, realm string, marshal func() ([]byte, error)) ([]byte, error) {
	b, err := marshal()
	if err != nil {
		return nil, fmt.Errorf("kerberos: encode a request: %w", err)
	}
	return c.send(ctx, realm, b)
}
