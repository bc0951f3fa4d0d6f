package hdfs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// haService begins the service of a token that all NameNodes of a nameservice take. Source: HdfsConstants.HA_DT_SERVICE_PREFIX.
const haService = "ha-hdfs:"

// TokenService is the service that tokens for this file system carry: "ha-hdfs:nameservice" with several NameNodes, else ip:port
// (host:port with hadoop.security.token.service.use_ip=false).
//
// Errors: *net.DNSError. Source: hadoop-common SecurityUtil.buildTokenService, HAUtilClient.buildTokenServiceForLogicalUri.
func (f *FileSystem) TokenService(ctx context.Context) (string, error) {
	if len(f.cfg.NameNodes[f.authority]) > 1 {
		return haService + f.authority, nil
	}
	host, port, err := net.SplitHostPort(f.nn.Addr())
	if err != nil {
		return "", fmt.Errorf("hdfs: token service: %w", err)
	}
	if f.cfg.TokenServiceByName {
		return net.JoinHostPort(strings.ToLower(host), port), nil
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return "", fmt.Errorf("hdfs: token service of %s: %w", f.authority, err)
	}
	for _, ip := range ips { // Java prefers IPv4
		if ip.IP.To4() != nil {
			return net.JoinHostPort(ip.String(), port), nil
		}
	}
	return net.JoinHostPort(ips[0].String(), port), nil
}

// DelegationToken asks for a token with which a process without Kerberos acts as this user. renewer is the short name of who may renew
// it, for an application the ResourceManager's user. The NameNode gives tokens to those only who logged in by Kerberos; a cluster
// without Kerberos has none, and the result is the zero Token.
func (f *FileSystem) DelegationToken(ctx context.Context, renewer string) (token.Token, error) {
	const op = "get delegation token of"
	service, err := f.TokenService(ctx)
	if err != nil {
		return token.Token{}, fail(op, f.URI(), err)
	}
	resp := &commonpb.GetDelegationTokenResponseProto{}
	req := &commonpb.GetDelegationTokenRequestProto{Renewer: proto.String(renewer)}
	if err := f.call(ctx, "getDelegationToken", req, resp); err != nil {
		return token.Token{}, fail(op, f.URI(), err)
	}
	if resp.GetToken() == nil {
		return token.Token{}, nil
	}
	t := token.FromProto(resp.GetToken())
	t.Service = service
	return t, nil
}

// RenewToken makes a token last longer, up to its maximum date, and returns until when. The caller must be the token's renewer.
func (f *FileSystem) RenewToken(ctx context.Context, t token.Token) (time.Time, error) {
	resp := &commonpb.RenewDelegationTokenResponseProto{}
	if err := f.call(ctx, "renewDelegationToken", &commonpb.RenewDelegationTokenRequestProto{Token: t.Proto()}, resp); err != nil {
		return time.Time{}, fail("renew delegation token of", f.URI(), err)
	}
	return time.UnixMilli(int64(resp.GetNewExpiryTime())), nil //nolint:gosec // fits
}

// CancelToken ends a token. The caller must be its owner or its renewer.
func (f *FileSystem) CancelToken(ctx context.Context, t token.Token) error {
	if err := f.call(ctx, "cancelDelegationToken", &commonpb.CancelDelegationTokenRequestProto{Token: t.Proto()}, &commonpb.CancelDelegationTokenResponseProto{}); err != nil {
		return fail("cancel delegation token of", f.URI(), err)
	}
	return nil
}

// ObtainTokens puts a delegation token of each file system into creds, under its service as Hadoop's clients do: of the default one and
// of those that security.kerberos.access.hadoopFileSystems lists (hdfs://nameservice or hdfs://host:port). It stops at the first that
// gives none.
func ObtainTokens(ctx context.Context, cfg Config, uris []string, renewer string, creds *token.Credentials) error {
	seen := map[string]bool{}
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "hdfs" {
			return fmt.Errorf("hdfs: %q is no file system with delegation tokens, want hdfs://nameservice or hdfs://host:port: %w", uri, iofs.ErrInvalid)
		}
		f, err := New(u.Host, cfg)
		if err != nil {
			return err
		}
		if seen[f.authority] {
			_ = f.Close() // never used
			continue
		}
		seen[f.authority] = true
		t, err := f.DelegationToken(ctx, renewer)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if !t.IsZero() {
			creds.Put(t.Service, t)
		}
	}
	return nil
}
