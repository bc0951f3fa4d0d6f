package rig

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// saslMechanisms is what the SASL_SSL listener offers.
const saslMechanisms = "GSSAPI,SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER"

// KafkaPassword is the password of alice or bob at the SASL_SSL listener, for SCRAM and PLAIN.
func KafkaPassword(user string) string { return user + "-password" }

// KafkaSASL is the address (host:port) of the SASL_SSL listener of a secured cluster, which takes GSSAPI, SCRAM-SHA-256 and -512, PLAIN and
// OAUTHBEARER; KafkaTLS that of the one that wants a client certificate. Both show a certificate of CAFile. KafkaBootstrap stays plain and open, for what
// tests write and judge themselves.
func (c *Cluster) KafkaSASL() string { return c.state.addr(portKafkaSASL) }

// KafkaTLS is described with KafkaSASL.
func (c *Cluster) KafkaTLS() string { return c.state.addr(portKafkaTLS) }

func (c *Cluster) kafkaSecure() map[string]string {
	l, s := c.layout, c.state
	if !s.Variant.Kerberos {
		return nil
	}
	listeners := "PLAINTEXT://" + s.addr(portKafka) + ",SASL_SSL://" + s.addr(portKafkaSASL) + ",SSL://" + s.addr(portKafkaTLS)
	sasl := "listener.name.sasl_ssl."
	scram := "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	return map[string]string{
		"listeners":                      listeners + ",CONTROLLER://" + s.addr(portKafkaController),
		"advertised.listeners":           listeners,
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":        saslMechanisms,
		"sasl.kerberos.service.name":     "kafka",
		sasl + "gssapi.sasl.jaas.config": fmt.Sprintf(`com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="%s" principal="%s";`,
			l.keytab("kafka"), c.service("kafka")),
		sasl + "scram-sha-256.sasl.jaas.config": scram,
		sasl + "scram-sha-512.sasl.jaas.config": scram,
		sasl + "plain.sasl.jaas.config": fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s" user_%s="%s";`,
			Alice, KafkaPassword(Alice), Bob, KafkaPassword(Bob)),
		sasl + "oauthbearer.sasl.jaas.config":                   "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
		sasl + "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
		"sasl.oauthbearer.jwks.endpoint.url":                    "file://" + c.jwks(),
		"ssl.keystore.type":                                     "JKS",
		"ssl.keystore.location":                                 filepath.Join(l.tls(), "server.jks"),
		"ssl.keystore.password":                                 storePassword,
		"ssl.key.password":                                      storePassword,
		"ssl.truststore.type":                                   "JKS",
		"ssl.truststore.location":                               filepath.Join(l.tls(), "trust.jks"),
		"ssl.truststore.password":                               storePassword,
		"listener.name.ssl.ssl.client.auth":                     "required",
		"listener.name.ssl.ssl.principal.mapping.rules":         "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
		"authorizer.class.name":                                 "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                           "User:ANONYMOUS;User:kafka",
		"allow.everyone.if.no.acl.found":                        "true",
	}
}

// kafkaSecureOptions are the broker's JVM options: it reads keys of tokens only from where this property allows.
func (c *Cluster) kafkaSecureOptions() []string {
	if !c.state.Variant.Kerberos {
		return nil
	}
	return []string{"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://" + c.jwks()}
}

// kafkaFormatArgs create the users of SCRAM.
func (c *Cluster) kafkaFormatArgs() []string {
	if !c.state.Variant.Kerberos {
		return nil
	}
	var out []string
	for _, u := range []string{Alice, Bob} {
		for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			out = append(out, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, u, KafkaPassword(u)))
		}
	}
	return out
}

func (c *Cluster) jwks() string     { return filepath.Join(c.layout.tls(), "jwks.json") }
func (c *Cluster) tokenKey() string { return filepath.Join(c.layout.tls(), "token-key.pem") }

const tokenKeyID = "rig"

// makeTokenKey writes the key pair by which tokens of OAUTHBEARER are signed, unless it is there.
func (c *Cluster) makeTokenKey() error {
	if _, err := os.Stat(c.jwks()); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("rig: make the key of tokens: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("rig: make the key of tokens: %w", err)
	}
	if err := writeFile(c.tokenKey(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	enc := base64.RawURLEncoding
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": tokenKeyID,
		"n": enc.EncodeToString(key.N.Bytes()), "e": enc.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
	}}})
	if err != nil {
		return fmt.Errorf("rig: make the key of tokens: %w", err)
	}
	return writeFile(c.jwks(), set, 0o644)
}

// KafkaToken is an OAUTHBEARER token (a JWT, signed with RS256) of the user, which the broker takes until life is over.
func (c *Cluster) KafkaToken(user string, life time.Duration) (string, error) {
	b, err := os.ReadFile(c.tokenKey())
	if err != nil {
		return "", fmt.Errorf("rig: token of %s: %w", user, err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", fmt.Errorf("rig: token of %s: %s is damaged", user, c.tokenKey())
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("rig: token of %s: %w", user, err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("rig: token of %s: %s holds no RSA key", user, c.tokenKey())
	}
	now := time.Now()
	enc := base64.RawURLEncoding
	part := func(v map[string]any) string {
		b, _ := json.Marshal(v) // strings and numbers alone
		return enc.EncodeToString(b)
	}
	text := part(map[string]any{"alg": "RS256", "typ": "JWT", "kid": tokenKeyID}) + "." +
		part(map[string]any{"sub": user, "scope": []string{"kafka"}, "iat": now.Unix(), "exp": now.Add(life).Unix()})
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("rig: token of %s: %w", user, err)
	}
	return text + "." + enc.EncodeToString(sig), nil
}
