// Package login says who a process of Thalweg is on a cluster with Kerberos: the client by a keytab, by the tickets of kinit or by
// tokens that it was given; the application master by the keytab that was sent with it, else by its tokens. It obtains the
// delegation tokens of an application. Layer L5; imports yarnrpc/{kerberos,identity} and fs/hdfs.
package login

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/kerberos"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// Who is an identity, with the Kerberos login that it may stand on.
type Who struct {
	*identity.Identity
	krb *kerberos.Login
}

// Close ends the login.
func (w *Who) Close() error {
	if w.krb == nil {
		return nil
	}
	return w.krb.Close()
}

// Forever reports whether the login goes on by itself, by a keytab.
func (w *Who) Forever() bool {
	if w.krb == nil {
		return false
	}
	_, forever := w.krb.Renewable()
	return forever
}

// EnvProxy names the user that a client acts for, as with Hadoop's own clients: the cluster must allow who logs in to stand for that user
// (hadoop.proxyuser.*).
//
// Source: hadoop-common UserGroupInformation.HADOOP_PROXY_USER.
const EnvProxy = "HADOOP_PROXY_USER"

// Client logs the client in: by security.kerberos.login.keytab, else by the tokens of HADOOP_TOKEN_FILE_LOCATION, else by kinit's tickets.
// On a cluster without Kerberos it is the user of the system, or HADOOP_USER_NAME. With HADOOP_PROXY_USER it acts for that user; tokens are of one user, and
// do not allow that.
//
// Errors: ipc.ErrLogin, *conf.KeyError, *kerberos.UnreachableError.
func Client(ctx context.Context, cfg config.Configuration, hadoop *conf.Configuration, getenv func(string) string, log zerolog.Logger) (*Who, error) {
	secure, err := hadoop.Kerberos()
	if err != nil {
		return nil, err
	}
	proxy := getenv(EnvProxy)
	if !secure {
		id, err := identity.New(hadoop, identity.WithProxy(proxy))
		return &Who{Identity: id}, err
	}
	keytab, principal := config.KerberosKeytab.Value(cfg), config.KerberosPrincipal.Value(cfg)
	switch file := getenv(token.EnvFile); {
	case keytab != "" || principal != "":
		return byKeytab(ctx, hadoop, Conf(cfg, getenv), keytab, principal, proxy, log)
	case file != "" && proxy != "":
		return nil, fmt.Errorf("login: %w: %s = %s: the tokens of %s are of one user and cannot act for another: log in by a keytab or by kinit, or unset %s",
			ipc.ErrLogin, EnvProxy, proxy, token.EnvFile, EnvProxy)
	case file != "":
		creds, err := token.ReadFile(file)
		if err != nil {
			return nil, err
		}
		id, err := identity.New(hadoop, identity.WithTokens(creds))
		return &Who{Identity: id}, err
	case !config.KerberosCache.Value(cfg):
		return nil, fmt.Errorf("login: %w: %s is false, and there is no other way: set %s and %s", ipc.ErrLogin,
			config.KerberosCache.Key, config.KerberosKeytab.Key, config.KerberosPrincipal.Key)
	}
	krb, err := load(Conf(cfg, getenv))
	if err != nil {
		return nil, err
	}
	l, err := kerberos.FromCache(krb, "", kerberos.WithLogger(log))
	if err != nil {
		return nil, err
	}
	return with(hadoop, l, proxy)
}

// Master logs the application master in: by the keytab in its folder, else by the tokens that it was started with.
func Master(ctx context.Context, cfg config.Configuration, hadoop *conf.Configuration, user, dir string, creds *token.Credentials, log zerolog.Logger) (*Who, error) {
	secure, err := hadoop.Kerberos()
	if err != nil {
		return nil, err
	}
	if !secure || config.KerberosKeytab.Value(cfg) == "" {
		id, err := identity.New(hadoop, identity.WithUser(user), identity.WithTokens(creds))
		return &Who{Identity: id}, err
	}
	keytab := config.LocalKeytab.Value(cfg)
	if !filepath.IsAbs(keytab) {
		keytab = filepath.Join(dir, keytab)
	}
	conf := filepath.Join(dir, ConfName)
	if _, err := os.Stat(conf); err != nil {
		conf = ""
	}
	return byKeytab(ctx, hadoop, conf, keytab, config.KerberosPrincipal.Value(cfg), "", log)
}

// ConfName is the name of the client's krb5.conf in the application master's folder.
const ConfName = "krb5.conf"

// Conf is the krb5.conf that is set for the client: security.kerberos.krb5-conf.path, else KRB5_CONFIG, else empty for the machine's.
func Conf(cfg config.Configuration, getenv func(string) string) string {
	if p := config.KerberosConf.Value(cfg); p != "" {
		return p
	}
	return getenv(kerberos.EnvConfig)
}

func load(paths string) (*kerberos.Config, error) {
	if paths == "" {
		paths = kerberos.DefaultConfigPath
	}
	return kerberos.LoadConfigFiles(strings.Split(paths, ":")...)
}

func byKeytab(ctx context.Context, hadoop *conf.Configuration, conf, keytab, principal, proxy string, log zerolog.Logger) (*Who, error) {
	if keytab == "" || principal == "" {
		return nil, fmt.Errorf("login: %w: %s and %s belong together: set both", ipc.ErrLogin, config.KerberosKeytab.Key, config.KerberosPrincipal.Key)
	}
	krb, err := load(conf)
	if err != nil {
		return nil, err
	}
	l, err := kerberos.FromKeytab(ctx, krb, keytab, principal, kerberos.WithLogger(log))
	if err != nil {
		return nil, err
	}
	return with(hadoop, l, proxy)
}

func with(hadoop *conf.Configuration, l *kerberos.Login, proxy string) (*Who, error) {
	id, err := identity.New(hadoop, identity.WithLogin(l), identity.WithProxy(proxy))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Who{Identity: id, krb: l}, nil
}

// Obtain asks for a delegation token of each file system: the default one, those of uris, those of
// security.kerberos.access.hadoopFileSystems. With renewer empty they are this user's own to renew, and until says when the first of them
// ends; otherwise until is zero. Nothing is obtained without Kerberos, or without a login of its own.
func (w *Who) Obtain(ctx context.Context, cfg config.Configuration, hadoop *conf.Configuration, renewer string, uris ...string) (creds *token.Credentials, until time.Time, err error) {
	creds = &token.Credentials{}
	if !w.Secure() || !w.HasLogin() || !config.TokensEnabled.Value(cfg) {
		return w.Tokens(), time.Time{}, nil
	}
	h, err := hdfs.FromConf(hadoop)
	if err != nil {
		return nil, until, err
	}
	h.Login = w.NameNode
	def, err := hadoop.DefaultFS()
	if err != nil {
		return nil, until, err
	}
	all := append(append([]string{def}, uris...), config.KerberosFileSystems.Value(cfg)...)
	var systems []string
	for _, u := range all {
		if strings.HasPrefix(u, "hdfs:") {
			systems = append(systems, u)
		}
	}
	own := renewer == ""
	if own {
		renewer = w.User()
	}
	if err := hdfs.ObtainTokens(ctx, h, systems, renewer, creds); err != nil {
		return nil, until, fmt.Errorf("login: %w", err)
	}
	if !own {
		return creds, until, nil
	}
	until, err = w.renew(ctx, h, systems, creds)
	return creds, until, err
}

// renew finds out when tokens end, which only a renewal tells.
//
// Source: Flink 2.x HadoopFSDelegationTokenProvider.getTokenRenewalInterval.
func (w *Who) renew(ctx context.Context, h hdfs.Config, systems []string, creds *token.Credentials) (until time.Time, err error) {
	for _, u := range systems {
		authority, _, _ := strings.Cut(strings.TrimPrefix(u, "hdfs://"), "/")
		f, err := hdfs.New(authority, h)
		if err != nil {
			return until, fmt.Errorf("login: %w", err)
		}
		service, err := f.TokenService(ctx)
		var end time.Time
		if t, ok := creds.ByService(token.KindHDFSDelegation, service); err == nil && ok {
			end, err = f.RenewToken(ctx, t)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return until, fmt.Errorf("login: %w", err)
		}
		if !end.IsZero() && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	return until, nil
}

// Renewer is who renews the tokens of an application while it runs: the ResourceManager.
//
// Source: hadoop-yarn-common YarnClientUtils.getRmPrincipal.
func Renewer(hadoop *conf.Configuration) (string, error) {
	p, err := hadoop.String(identity.KeyResourceManager, "")
	if err != nil {
		return "", err
	}
	if p == "" {
		return "", &conf.KeyError{Key: identity.KeyResourceManager, Fix: "name the ResourceManager's principal, which renews the tokens of applications"}
	}
	addrs, err := hadoop.ResourceManagers()
	if err != nil {
		return "", err
	}
	host, _, _ := strings.Cut(addrs[0], ":")
	return strings.Replace(p, ipc.HostPattern, strings.ToLower(host), 1), nil
}
