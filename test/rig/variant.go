package rig

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Protection levels of Hadoop's RPC and of HDFS data transfer.
const (
	Authentication = "authentication"
	Integrity      = "integrity"
	Privacy        = "privacy"
)

// Variant says what kind of cluster it is. The zero value is the simple one: no security, one of each master.
type Variant struct {
	// Kerberos secures the whole cluster: a KDC of its own, Hadoop under Kerberos with HTTPS for HDFS and ACLs, Kafka with SASL_SSL and SSL
	// listeners beside the plain one.
	Kerberos bool `json:"kerberos,omitempty"`
	// RPC and Data are hadoop.rpc.protection and dfs.data.transfer.protection: a level, or several, separated by commas, as the servers
	// shall offer them. Default authentication. With Kerberos only.
	RPC  string `json:"rpc_protection,omitempty"`
	Data string `json:"data_protection,omitempty"`
	// Encrypt is dfs.encrypt.data.transfer; AES makes AES/CTR/NoPadding the cipher suite of protected data transfer.
	Encrypt bool `json:"encrypt,omitempty"`
	AES     bool `json:"aes,omitempty"`
	// SPNEGO asks for it on the web pages and REST interfaces of Hadoop's daemons.
	SPNEGO bool `json:"spnego,omitempty"`
	// ShortTokens lets delegation tokens of HDFS and YARN be renewed for 1 min and live for 2 min; keys of AM-RM tokens roll each minute, too.
	ShortTokens bool `json:"short_tokens,omitempty"`
	// RMHA and NNHA are pairs of ResourceManagers and NameNodes with automatic failover by a ZooKeeper; the NameNodes share one JournalNode.
	RMHA bool `json:"rm_ha,omitempty"`
	NNHA bool `json:"nn_ha,omitempty"`
}

// VariantHelp explains the text form of a Variant.
const VariantHelp = `words separated by commas:
  simple                 no security, one of each master (the default)
  kerberos               a KDC, Hadoop under Kerberos, Kafka with SASL_SSL and TLS beside the plain port
  authentication, integrity, privacy
                         the protection of Hadoop's RPC and of HDFS data (default authentication)
  rpc=..., data=...      each of its own; several that servers offer are joined by +: rpc=privacy+integrity
  encrypt                dfs.encrypt.data.transfer
  aes                    AES/CTR/NoPadding as the cipher suite of data transfer
  spnego                 SPNEGO on Hadoop's web pages and REST
  short-tokens           delegation tokens are renewed for 1 min and live for 2 min
  rm-ha                  two ResourceManagers, a ZooKeeper
  nn-ha                  two NameNodes, two failover controllers, a JournalNode, a ZooKeeper
such as THALWEG_RIG=kerberos,privacy,rm-ha`

// ParseVariant reads the text form, which is that of the variable THALWEG_RIG: see VariantHelp. The empty text is the simple cluster.
func ParseVariant(text string) (Variant, error) {
	var v Variant
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "", "simple":
		case "kerberos":
			v.Kerberos = true
		case Authentication, Integrity, Privacy:
			v.RPC, v.Data = word, word
		case "rpc":
			v.RPC = strings.ReplaceAll(value, "+", ",")
		case "data":
			v.Data = strings.ReplaceAll(value, "+", ",")
		case "encrypt":
			v.Encrypt = true
		case "aes":
			v.AES = true
		case "spnego":
			v.SPNEGO = true
		case "short-tokens":
			v.ShortTokens = true
		case "rm-ha":
			v.RMHA = true
		case "nn-ha":
			v.NNHA = true
		default:
			return Variant{}, fmt.Errorf("rig: cluster %q: no word %q; it is made of %s", text, word, VariantHelp)
		}
	}
	return v.check(text)
}

// check completes the levels and refuses what contradicts itself.
func (v Variant) check(text string) (Variant, error) {
	bad := func(why string) (Variant, error) {
		return Variant{}, fmt.Errorf("rig: cluster %q: %s", text, why)
	}
	if !v.Kerberos {
		if v.RPC != "" || v.Data != "" || v.Encrypt || v.AES || v.SPNEGO || v.ShortTokens {
			return bad("protection, encryption, SPNEGO and token lifetimes need kerberos")
		}
		return v, nil
	}
	for _, level := range []*string{&v.RPC, &v.Data} {
		if *level == "" {
			*level = Authentication
		}
		for l := range strings.SplitSeq(*level, ",") {
			if !slices.Contains([]string{Authentication, Integrity, Privacy}, l) {
				return bad(fmt.Sprintf("no protection level %q (there are authentication, integrity, privacy)", l))
			}
		}
	}
	return v, nil
}

// String is the text form; ParseVariant reads it.
func (v Variant) String() string {
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(v.Kerberos, "kerberos")
	if v.Kerberos && v.RPC == v.Data && !strings.Contains(v.RPC, ",") {
		words = append(words, v.RPC)
	} else if v.Kerberos {
		words = append(words, "rpc="+strings.ReplaceAll(v.RPC, ",", "+"), "data="+strings.ReplaceAll(v.Data, ",", "+"))
	}
	add(v.Encrypt, "encrypt")
	add(v.AES, "aes")
	add(v.SPNEGO, "spnego")
	add(v.ShortTokens, "short-tokens")
	add(v.RMHA, "rm-ha")
	add(v.NNHA, "nn-ha")
	if len(words) == 0 {
		return "simple"
	}
	return strings.Join(words, ",")
}

// wanted is the variant that the text names, or THALWEG_RIG where there is none; with neither a folder that was a cluster stays what it was.
func (l layout) wanted(text string) (Variant, error) {
	if text == "" {
		text = os.Getenv("THALWEG_RIG")
	}
	if s, err := l.load(); err == nil && text == "" {
		return s.Variant, nil
	}
	return ParseVariant(text)
}

// fits refuses a change of the variant that the cluster's data or its running daemons do not allow.
func (s state) fits(want Variant, running bool, dir string) error {
	have := s.Variant
	switch {
	case have == want:
		return nil
	case running:
		return fmt.Errorf("rig: the cluster in %s runs as %q, and %q is wanted: stop it (rig down), or set THALWEG_CLUSTER_DIR to another folder", dir, have, want)
	case have.Kerberos != want.Kerberos || have.NNHA != want.NNHA:
		return fmt.Errorf("rig: %s has the data of the cluster %q, and %q is wanted: remove them (rig down -purge), or set THALWEG_CLUSTER_DIR to another folder", dir, have, want)
	}
	return nil
}
