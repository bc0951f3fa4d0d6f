// Package identity is who a process is towards Hadoop's daemons: a user under simple authentication, a Kerberos login, a
// set of tokens, or a login with tokens. Layer L1; imports yarnrpc/{ipc,token,conf}, and no Kerberos, so that a user's program
// which has tokens alone carries none.
//
// Main flow: New, Options (or NameNode, ResourceManager) for each client, SetTokens whenever there are newer tokens.
//
// Invariants:
//  1. Clients ask at each connection, so that what was replaced is used from the next connection on.
//  2. On a secured cluster nothing is called without authentication, unless ipc.client.fallback-to-simple-auth-allowed says so.
//  3. A token is shown to the service that it was made for alone.
package identity

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// Keys of Hadoop's configuration.
const (
	KeyFallback         = "ipc.client.fallback-to-simple-auth-allowed"
	KeyNameNode         = "dfs.namenode.kerberos.principal"
	KeyResourceManager  = "yarn.resourcemanager.principal"
	keyServiceUseIP     = "hadoop.security.token.service.use_ip"
	nameserviceOfTokens = "ha-hdfs:"
)

// Login is a Kerberos login; *kerberos.Login is one.
type Login interface {
	// Principal is name@REALM.
	Principal() string
	// Mechanism authenticates connections to a server.
	Mechanism(accept []ipc.Protection, server ipc.ServerPrincipal) ipc.Mechanism
}

// Identity is safe for concurrent use.
type Identity struct {
	conf        *conf.Configuration
	secure      bool
	fallback    bool
	byName      bool // services of tokens are host:port
	protections []ipc.Protection
	user        ipc.User // under simple authentication
	proxy       string
	login       Login

	mu     sync.Mutex
	tokens *token.Credentials
	only   bool        // tokens are all that this process can have
	file   string      // of tokens, or empty
	read   os.FileInfo // of the file when it was read
}

// Option changes an Identity.
type Option func(*Identity)

// WithUser sets the user under simple authentication, ipc.CurrentUser by default.
func WithUser(name string) Option { return func(i *Identity) { i.user = ipc.User{Effective: name} } }

// WithLogin logs in by Kerberos wherever there is no token.
func WithLogin(l Login) Option { return func(i *Identity) { i.login = l } }

// WithTokens sets the first tokens, as SetTokens.
func WithTokens(c *token.Credentials) Option { return func(i *Identity) { i.SetTokens(c) } }

// WithTokenFile takes the tokens from a credentials file (token.EnvFile), and again whenever the file was replaced. The process is one
// that cannot log in itself, as the user's programs; path may be empty.
func WithTokenFile(path string) Option { return func(i *Identity) { i.file, i.only = path, true } }

// WithProxy acts as another user, who the cluster must allow this one to stand for (hadoop.proxyuser.*).
func WithProxy(user string) Option { return func(i *Identity) { i.proxy = user } }

// New makes the identity for the cluster of a configuration.
//
// Errors: *conf.KeyError; no user name.
func New(c *conf.Configuration, opts ...Option) (*Identity, error) {
	i := &Identity{conf: c, tokens: &token.Credentials{}}
	for _, o := range opts {
		o(i)
	}
	var err error
	if i.secure, err = c.Kerberos(); err != nil {
		return nil, err
	}
	if i.fallback, err = c.Bool(KeyFallback, false); err != nil {
		return nil, err
	}
	byIP, err := c.Bool(keyServiceUseIP, true)
	if err != nil {
		return nil, err
	}
	i.byName = !byIP
	if i.protections, err = Protections(c); err != nil {
		return nil, err
	}
	if i.user == (ipc.User{}) {
		if i.user, err = ipc.CurrentUser(); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Protections is hadoop.rpc.protection.
//
// Errors: *conf.KeyError.
func Protections(c *conf.Configuration) ([]ipc.Protection, error) {
	v, err := c.String(conf.KeyRPCProtection, "")
	if err != nil {
		return nil, err
	}
	p, err := ipc.ParseProtections(v)
	if err != nil {
		return nil, &conf.KeyError{Key: conf.KeyRPCProtection, Value: v, File: c.Source(conf.KeyRPCProtection), Fix: err.Error()}
	}
	return p, nil
}

// Secure reports whether the cluster authenticates with Kerberos.
func (i *Identity) Secure() bool { return i.secure }

// User is the short name of who acts: the proxy user, the principal's first part, or the user under simple authentication.
func (i *Identity) User() string {
	switch {
	case i.proxy != "":
		return i.proxy
	case i.secure && i.login != nil:
		return strings.FieldsFunc(i.login.Principal(), func(r rune) bool { return r == '/' || r == '@' })[0]
	}
	return i.user.Effective
}

// HasLogin reports whether there is a Kerberos login, without which no tokens can be asked for.
func (i *Identity) HasLogin() bool { return i.login != nil }

// SetTokens replaces all tokens, from the next connection of each client on.
func (i *Identity) SetTokens(c *token.Credentials) {
	c = c.Clone()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tokens = c
}

// Tokens returns a copy of the tokens.
func (i *Identity) Tokens() *token.Credentials { return i.current().Clone() }

// current returns the tokens of this moment. They are replaced, never changed. A file that cannot be read leaves those of before.
func (i *Identity) current() *token.Credentials {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == "" {
		return i.tokens
	}
	info, err := os.Stat(i.file)
	if err != nil || i.read != nil && os.SameFile(info, i.read) && info.ModTime().Equal(i.read.ModTime()) {
		return i.tokens
	}
	if c, err := token.ReadFile(i.file); err == nil {
		i.tokens, i.read = c, info
	}
	return i.tokens
}

// Service is what a client wants to call.
type Service struct {
	Kind token.Kind // of its tokens
	// Name is the service that its tokens carry, when that is no address: "ha-hdfs:nameservice".
	Name   string
	Server ipc.ServerPrincipal
}

// NameNode is the service of the NameNodes at addrs behind an authority.
func (i *Identity) NameNode(authority string, addrs []string) []ipc.Option {
	s := Service{Kind: token.KindHDFSDelegation, Server: i.server(KeyNameNode)}
	if len(addrs) > 1 {
		s.Name = nameserviceOfTokens + authority
	}
	return i.Options(s)
}

// ResourceManager is the service of the ResourceManager's client port.
func (i *Identity) ResourceManager() []ipc.Option {
	return i.Options(Service{Kind: token.KindRMDelegation, Server: i.server(KeyResourceManager)})
}

func (i *Identity) server(key string) ipc.ServerPrincipal {
	name, _ := i.conf.String(key, "") // what does not resolve is refused as unset, by its key
	pattern, _ := i.conf.String(key+".pattern", "")
	return ipc.ServerPrincipal{Key: key, Name: name, Pattern: pattern}
}

// Options are those of an ipc client of a service: with a token for it, else the login, else a refusal that says what is missing.
func (i *Identity) Options(s Service) []ipc.Option {
	user := i.user
	if i.proxy != "" {
		user = ipc.User{Effective: i.proxy, Real: i.user.Effective}
	}
	if !i.secure {
		return []ipc.Option{ipc.WithUser(user)}
	}
	ms := []ipc.Mechanism{&tokens{i, s}}
	if i.login != nil {
		ms = append(ms, i.login.Mechanism(i.protections, s.Server))
		if i.proxy != "" {
			user.Real = i.login.Principal()
		}
	} else {
		ms = append(ms, missing{i, s})
	}
	out := []ipc.Option{ipc.WithMechanisms(ms...), ipc.WithUser(user)}
	if i.fallback {
		out = append(out, ipc.WithSimpleFallback())
	}
	return out
}

// tokens logs in with the token of a service, if there is one at that moment.
type tokens struct {
	id *Identity
	s  Service
}

func (t *tokens) Accepts(o ipc.Offer) bool {
	if o.Method != ipc.MethodToken || o.Mechanism != digestmd5.Mechanism {
		return false
	}
	_, ok := t.find(o.Addr)
	return ok
}

func (t *tokens) Begin(ctx context.Context, o ipc.Offer) (ipc.Session, error) {
	tok, ok := t.find(o.Addr)
	if !ok {
		return nil, t.id.missingError(t.s, o.Addr)
	}
	return ipc.TokenAuth{Protections: t.id.protections, Credential: func() ([]byte, []byte, error) {
		return tok.Identifier, tok.Password, nil
	}}.Begin(ctx, o)
}

// find returns the token of the kind whose service is that at addr. The service of several ResourceManagers is the list of all.
//
// Source: hadoop-common SecurityUtil.buildTokenService, hadoop-yarn-common ClientRMProxy.getTokenService.
func (t *tokens) find(addr string) (token.Token, bool) {
	all := t.id.current()
	names := []string{t.s.Name}
	if t.s.Name == "" {
		names = nil
	}
	var ofKind []token.Token
	for _, a := range all.Aliases() {
		if tok, _ := all.Token(a); tok.Kind == t.s.Kind {
			ofKind = append(ofKind, tok)
		}
	}
	if len(ofKind) == 0 {
		return token.Token{}, false
	}
	if names == nil {
		names = services(addr, t.id.byName)
	}
	for _, tok := range ofKind {
		for s := range strings.SplitSeq(tok.Service, ",") {
			if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, s) }) {
				return tok, true
			}
		}
	}
	return token.Token{}, false
}

// services are what a token for the server at addr may carry.
func services(addr string, byName bool) []string {
	addr = strings.ToLower(addr)
	out := []string{addr}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || byName || net.ParseIP(host) != nil {
		return out
	}
	ips, _ := net.LookupHost(host) //nolint:noctx // the connection has resolved it a moment ago
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}

// missing takes the place of the login that there is not, to say so.
type missing struct {
	id *Identity
	s  Service
}

func (missing) Accepts(o ipc.Offer) bool { return o.Method == ipc.MethodKerberos }

func (m missing) Begin(_ context.Context, o ipc.Offer) (ipc.Session, error) {
	return nil, m.id.missingError(m.s, o.Addr)
}

func (i *Identity) missingError(s Service, addr string) error {
	name := s.Name
	if name == "" {
		name = addr
	}
	if i.only {
		return fmt.Errorf("identity: %w: no %s for %s: run the program on YARN, or give it tokens by %s (hdfs fetchdt); on YARN add the file system to security.kerberos.access.hadoopFileSystems",
			ipc.ErrLogin, s.Kind, name, token.EnvFile)
	}
	return fmt.Errorf("identity: %w: no Kerberos ticket and no %s for %s: run kinit, or set security.kerberos.login.keytab and security.kerberos.login.principal",
		ipc.ErrLogin, s.Kind, name)
}
