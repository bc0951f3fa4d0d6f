package kerberos

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/types"
	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// What part of its life a ticket is used for, and how long a failed refresh waits.
const (
	refreshAt    = 0.8
	serviceUntil = 0.9
	minRetry     = time.Second
	maxRetry     = time.Minute
)

// Login is a principal that is logged in. It is safe for concurrent use. Close it.
type Login struct {
	cfg    *Config
	who    principal
	keys   *keyring // nil for a ticket cache
	cache  string   // file of the ticket cache
	logger zerolog.Logger

	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	tgt      ticket
	services map[string]ticket

	refreshing sync.Mutex // held while the ticket is replaced, over I/O: nobody waits for it but those who would do the same
	modified   time.Time  // of the cache file when it was read; guarded by refreshing
}

// Option changes a Login.
type Option func(*Login)

// WithLogger sets the logger, none by default.
func WithLogger(l zerolog.Logger) Option { return func(o *Login) { o.logger = l } }

// FromKeytab logs principal (name@REALM, name/host@REALM, or without realm for the default one) in with its key in a keytab.
//
// Errors: ipc.ErrLogin (keytab, principal, clock), *UnreachableError, the context's.
func FromKeytab(ctx context.Context, cfg *Config, path, principal string, opts ...Option) (*Login, error) {
	who, err := cfg.parsePrincipal(principal)
	if err != nil {
		return nil, err
	}
	keys, err := readKeytab(path)
	if err != nil {
		return nil, err
	}
	if err := keys.check(who); err != nil {
		return nil, err
	}
	l := &Login{cfg: cfg, who: who, keys: keys}
	tgt, err := cfg.login(ctx, who, keys)
	if err != nil {
		return nil, err
	}
	return l.start(tgt, nil, opts), nil
}

// FromCache uses the tickets that kinit has put into a cache: name, which may begin with FILE: or DIR:, else KRB5CCNAME, else
// the default one. A renewable ticket is renewed for as long as it may be; a newer one that kinit puts there is taken over.
//
// Errors: ipc.ErrLogin.
func FromCache(cfg *Config, name string, opts ...Option) (*Login, error) {
	path, err := cfg.cachePath(name)
	if err != nil {
		return nil, err
	}
	info, _ := os.Stat(path)
	who, tgt, services, err := readCache(path)
	if err != nil {
		return nil, err
	}
	l := &Login{cfg: cfg, who: who, cache: path}
	if info != nil {
		l.modified = info.ModTime()
	}
	if err := l.ended(tgt); err != nil {
		return nil, err
	}
	return l.start(tgt, services, opts), nil
}

// ended is the error of a ticket of a cache that is over.
func (l *Login) ended(tgt ticket) error {
	if time.Now().Before(tgt.end) {
		return nil
	}
	return loginError("the ticket of %s in %s ended at %s: run kinit", l.who, l.cache, tgt.end.Local().Format(time.DateTime))
}

func (l *Login) start(tgt ticket, services []ticket, opts []Option) *Login {
	l.logger = zerolog.Nop()
	for _, o := range opts {
		o(l)
	}
	l.tgt, l.services, l.done = tgt, map[string]ticket{}, make(chan struct{})
	for _, s := range services {
		l.services[s.raw.SName.PrincipalNameString()+"@"+s.raw.Realm] = s
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.run(ctx)
	return l
}

// Close stops the refreshing and forgets the tickets.
func (l *Login) Close() error {
	l.cancel()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tgt, l.services = ticket{}, map[string]ticket{}
	return nil
}

// Principal is who is logged in, name@REALM.
func (l *Login) Principal() string { return l.who.String() }

// Expires is when the current ticket ends.
func (l *Login) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tgt.end
}

// Renewable reports whether the login goes on by itself: with a keytab always, with a cache up to the returned time.
func (l *Login) Renewable() (until time.Time, forever bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tgt.renewTill, l.keys != nil
}

// run refreshes the ticket-granting ticket until Close.
func (l *Login) run(ctx context.Context) {
	defer close(l.done)
	wait := minRetry
	at := l.ticketGranting().after(refreshAt)
	for {
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err := l.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait = minRetry
			if at = l.ticketGranting().after(refreshAt); at.Before(time.Now()) { // it can be made no longer
				at = time.Now().Add(maxRetry)
			}
			l.logger.Info().Str("principal", l.who.String()).Time("until", l.Expires()).Msg("Kerberos ticket refreshed")
		default:
			l.logger.Warn().Str("principal", l.who.String()).Time("until", l.Expires()).Err(err).Msg("Kerberos ticket could not be refreshed, trying again")
			at = time.Now().Add(wait)
			wait = min(2*wait, maxRetry)
		}
	}
}

func (l *Login) ticketGranting() ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tgt
}

// refresh replaces the ticket-granting ticket: from the keytab, from the cache file when kinit has written it anew, by renewal.
func (l *Login) refresh(ctx context.Context) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	if l.keys != nil {
		tgt, err := l.cfg.login(ctx, l.who, l.keys)
		if err == nil {
			l.replace(tgt, nil)
		}
		return err
	}
	old := l.ticketGranting()
	if info, err := os.Stat(l.cache); err == nil && !info.ModTime().Equal(l.modified) {
		if who, tgt, services, err := readCache(l.cache); err == nil && who.String() == l.who.String() && tgt.end.After(old.end) {
			l.modified = info.ModTime()
			l.replace(tgt, services)
			return nil
		}
	}
	now := time.Now()
	if err := l.ended(old); err != nil {
		return err
	}
	if !old.renewTill.After(now) || !old.renewTill.After(old.end) {
		return loginError("the ticket of %s in %s cannot be renewed and ends at %s: run kinit", l.who, l.cache, old.end.Local().Format(time.DateTime))
	}
	tgt, err := l.cfg.renew(ctx, l.who, old)
	if err == nil {
		l.replace(tgt, nil)
	}
	return err
}

func (l *Login) replace(tgt ticket, services []ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tgt = tgt
	now := time.Now()
	maps.DeleteFunc(l.services, func(_ string, t ticket) bool { return !now.Before(t.after(serviceUntil)) })
	for _, s := range services {
		l.services[s.raw.SName.PrincipalNameString()+"@"+s.raw.Realm] = s
	}
}

// ticketFor returns a ticket for a service, from memory when there is one that lasts.
//
// Errors: ipc.ErrLogin, *UnreachableError, the context's.
func (l *Login) ticketFor(ctx context.Context, service types.PrincipalName, realm string) (ticket, error) {
	name := service.PrincipalNameString() + "@" + realm
	now := time.Now()
	l.mu.Lock()
	t, ok := l.services[name]
	tgt := l.tgt
	l.mu.Unlock()
	if ok && now.Before(t.after(serviceUntil)) {
		return t, nil
	}
	if !now.Before(tgt.end) { // the process was stopped, or the KDC was away for long
		if err := l.refresh(ctx); err != nil {
			return ticket{}, err
		}
		tgt = l.ticketGranting()
	}
	fresh, err := l.cfg.serviceTicket(ctx, l.who, tgt, service, realm)
	switch {
	case err == nil:
		l.mu.Lock()
		l.services[name] = fresh
		l.mu.Unlock()
		return fresh, nil
	case ok && now.Before(t.end) && !errors.Is(err, ipc.ErrLogin): // no KDC answers, and the old one will still do
		return t, nil
	}
	return ticket{}, err
}
