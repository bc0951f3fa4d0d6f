package config

import "strings"

// Hidden stands in for the value of a secret option wherever a configuration is shown.
const Hidden = "******"

// secretParts are the parts of keys that mark secrets.
//
// Source: Flink 2.x GlobalConfiguration.SENSITIVE_KEYS, widened by the spellings that Kafka and cloud clients use.
var secretParts = []string{
	"password", "secret", "token", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "credential",
	"access.key", "accesskey", "access-key", "sasl.jaas.config", "basic-auth", "private-key", "private.key",
}

// Secret reports whether the value of key must not be shown: the key holds one of the known parts, or one of additional
// (security.redaction.additional-keys). Case does not matter.
func Secret(key string, additional ...string) bool {
	k := strings.ToLower(key)
	for _, p := range secretParts {
		if strings.Contains(k, p) {
			return true
		}
	}
	for _, p := range additional {
		if p = strings.ToLower(strings.TrimSpace(p)); p != "" && strings.Contains(k, p) {
			return true
		}
	}
	return false
}

// Redacted returns a copy whose secret values are Hidden: the only form in which a configuration reaches logs, REST, the dashboard,
// savepoints and error texts.
func (c Configuration) Redacted() Configuration {
	additional := RedactionKeys.Value(c)
	out := make(Configuration, len(c))
	for k, v := range c {
		if v != "" && Secret(k, additional...) {
			v = Hidden
		}
		out[k] = v
	}
	return out
}

// Redact replaces the values of c's secret options inside of text, for errors that come from elsewhere and may quote them. Values
// shorter than four bytes are left alone, since they would tear up ordinary words.
func (c Configuration) Redact(text string) string {
	additional := RedactionKeys.Value(c)
	for k, v := range c {
		if len(v) >= 4 && Secret(k, additional...) {
			text = strings.ReplaceAll(text, v, Hidden)
		}
	}
	return text
}
