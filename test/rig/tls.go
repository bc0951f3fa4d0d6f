package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const certLife = 10 * 365 * 24 * time.Hour

// CAFile is the certificate (PEM) of the authority that signed those of the daemons and users of a secured cluster.
func (c *Cluster) CAFile() string { return filepath.Join(c.layout.tls(), "ca.pem") }

// ClientCert are the files (PEM) of the certificate and key of alice or bob, whose common name is the user's.
func (c *Cluster) ClientCert(user string) (cert, key string) {
	return filepath.Join(c.layout.tls(), user+".pem"), filepath.Join(c.layout.tls(), user+"-key.pem")
}

// makeCerts makes an authority, a certificate for the daemons and one for each user, unless they are there.
func (c *Cluster) makeCerts() error {
	if _, err := os.Stat(c.CAFile()); err == nil {
		return nil
	}
	dir := c.layout.tls()
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	ca := template(1, "Thalweg rig")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage, ca.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("rig: make certificates: %w", err)
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return fmt.Errorf("rig: make certificates: %w", err)
	}
	issue := func(t *x509.Certificate, base string) (pkcs8, der []byte, err error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, fmt.Errorf("rig: make certificates: %w", err)
		}
		if der, err = x509.CreateCertificate(rand.Reader, t, ca, key.Public(), caKey); err != nil {
			return nil, nil, fmt.Errorf("rig: make certificates: %w", err)
		}
		if pkcs8, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return nil, nil, fmt.Errorf("rig: make certificates: %w", err)
		}
		if err := writeFile(filepath.Join(dir, base+"-key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600); err != nil {
			return nil, nil, err
		}
		return pkcs8, der, writeFile(filepath.Join(dir, base+".pem"), pemCert(der), 0o644)
	}
	server := template(2, host)
	server.DNSNames, server.IPAddresses = []string{host}, []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(secondHost)}
	key, der, err := issue(server, "server")
	if err != nil {
		return err
	}
	for i, u := range []string{Alice, Bob} {
		if _, _, err := issue(template(int64(3+i), u), u); err != nil {
			return err
		}
	}
	for name, e := range map[string]jksEntry{"server.jks": {"server", key, [][]byte{der, caDER}}, "trust.jks": {"ca", nil, [][]byte{caDER}}} {
		b, err := jks(storePassword, now, e)
		if err != nil {
			return fmt.Errorf("rig: make certificates: %w", err)
		}
		if err := writeFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	secret := make([]byte, 64)
	_, _ = rand.Read(secret)
	if err := writeFile(filepath.Join(dir, "http.secret"), secret, 0o600); err != nil {
		return err
	}
	return writeFile(c.CAFile(), pemCert(caDER), 0o644) // last: it says that all are there
}

func pemCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TLSConfig trusts the cluster's authority; with a user it shows that user's certificate.
func (c *Cluster) TLSConfig(user string) (*tls.Config, error) {
	b, err := os.ReadFile(c.CAFile())
	if err != nil {
		return nil, fmt.Errorf("rig: TLS: %w", err)
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !cfg.RootCAs.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("rig: TLS: no certificate in %s", c.CAFile())
	}
	if user != "" {
		cert, err := tls.LoadX509KeyPair(c.ClientCert(user))
		if err != nil {
			return nil, fmt.Errorf("rig: TLS: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// webs makes the client of the daemons' web pages once.
type webs struct {
	once   sync.Once
	client *http.Client
	err    error
}

// web asks the daemons' own pages; no connection is kept.
func (c *Cluster) web() (*http.Client, error) {
	w := &c.runner.webs
	w.once.Do(func() {
		t := &http.Transport{DisableKeepAlives: true}
		if c.state.Variant.Kerberos {
			t.TLSClientConfig, w.err = c.TLSConfig("")
		}
		w.client = &http.Client{Timeout: 10 * time.Second, Transport: t}
		if c.state.Variant.SPNEGO {
			w.client.Transport = &negotiator{c: c, next: t}
		}
	})
	return w.client, w.err
}
