package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/thalweg/thalweg/connector/kafka"
)

// options are what connection says, for the connector.
func (f *transactionFlags) options() ([]kafka.Option, error) {
	addrs, opts, err := f.connection()
	return []kafka.Option{kafka.Brokers(addrs...), kafka.ClientOptions(opts...)}, err
}

// connection is the brokers and the security of --bootstrap-server and --command-config.
func (f *transactionFlags) connection() (addrs []string, opts []kgo.Opt, err error) {
	props := map[string]string{}
	if f.properties != "" {
		b, err := os.ReadFile(f.properties)
		if err != nil {
			return nil, nil, fmt.Errorf("--command-config: %w", err)
		}
		if props, err = properties(string(b)); err != nil {
			return nil, nil, fmt.Errorf("--command-config %s: %w", f.properties, err)
		}
	}
	brokers := f.brokers
	if brokers == "" {
		brokers = props["bootstrap.servers"]
	}
	if brokers == "" {
		return nil, nil, errors.New("--bootstrap-server is missing: the Kafka brokers, as host:port")
	}
	for a := range strings.SplitSeq(brokers, ",") {
		if a = strings.TrimSpace(a); a != "" {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, nil, fmt.Errorf("--bootstrap-server %q names no broker: give host:port, several with commas", brokers)
	}
	if opts, err = security(props); err != nil {
		return nil, nil, fmt.Errorf("--command-config %s: %w", f.properties, err)
	}
	return addrs, opts, nil
}

// properties reads a Java properties file: key=value lines, # and ! comments, a backslash at the end of a line joins it to the next.
func properties(text string) (map[string]string, error) {
	all := map[string]string{}
	text = regexp.MustCompile(`\\\r?\n[ \t]*`).ReplaceAllString(text, "")
	for n, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '#' || l[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, fmt.Errorf("line %d is not key=value", n+1)
		}
		all[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return all, nil
}

var jaasField = regexp.MustCompile(`\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"`)

// security turns Kafka's client properties into options of the client. Names and values are Kafka's; what is not supported is an error.
func security(props map[string]string) (opts []kgo.Opt, err error) {
	protocol := strings.ToUpper(props["security.protocol"])
	if protocol == "" {
		protocol = "PLAINTEXT"
	}
	switch protocol {
	case "PLAINTEXT", "SASL_PLAINTEXT":
	case "SSL", "SASL_SSL":
		conf, err := tlsConfig(props)
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	default:
		return nil, fmt.Errorf("security.protocol=%s: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
	}
	if !strings.HasPrefix(protocol, "SASL_") {
		return opts, nil
	}
	login := map[string]string{}
	for _, m := range jaasField.FindAllStringSubmatch(props["sasl.jaas.config"], -1) {
		login[m[1]] = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(m[2])
	}
	mechanism := strings.ToUpper(props["sasl.mechanism"])
	if mechanism != "" && mechanism != "GSSAPI" && (login["username"] == "" || login["password"] == "") {
		return nil, errors.New(`sasl.jaas.config lacks username="..." or password="..."`)
	}
	switch mechanism {
	case "PLAIN":
		return append(opts, kgo.SASL(plain.Auth{User: login["username"], Pass: login["password"]}.AsMechanism())), nil
	case "SCRAM-SHA-256":
		return append(opts, kgo.SASL(scram.Auth{User: login["username"], Pass: login["password"]}.AsSha256Mechanism())), nil
	case "SCRAM-SHA-512":
		return append(opts, kgo.SASL(scram.Auth{User: login["username"], Pass: login["password"]}.AsSha512Mechanism())), nil
	}
	return nil, fmt.Errorf("sasl.mechanism=%s: this program knows PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512", props["sasl.mechanism"])
}

// tlsConfig reads PEM files; Java's own key stores have to be exported to them.
func tlsConfig(props map[string]string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, store := range []string{"truststore", "keystore"} {
		if at := props["ssl."+store+".location"]; at != "" && !strings.EqualFold(props["ssl."+store+".type"], "PEM") {
			return nil, fmt.Errorf("ssl.%s.location is not of ssl.%s.type=PEM: export it to PEM (keytool -exportcert -rfc, openssl pkcs12)", store, store)
		}
	}
	pem := []byte(props["ssl.truststore.certificates"])
	if at := props["ssl.truststore.location"]; at != "" {
		var err error
		if pem, err = os.ReadFile(at); err != nil {
			return nil, fmt.Errorf("ssl.truststore.location: %w", err)
		}
	}
	if len(pem) > 0 {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the trust store holds no certificate in PEM form")
		}
	}
	if at := props["ssl.keystore.location"]; at != "" {
		b, err := os.ReadFile(at)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.location: %w", err)
		}
		pair, err := tls.X509KeyPair(b, b)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.location: %w (it holds the certificates and the unencrypted key)", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
