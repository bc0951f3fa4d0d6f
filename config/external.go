package config

import (
	"fmt"
	"strconv"
	"strings"
)

// externalPrefix begins the keys of single external resources: external-resource.NAME.amount and external-resource.NAME.yarn.config-key.
const externalPrefix = "external-resource."

// ExternalAmounts are the amounts of the external resources of a TaskManager by their names on YARN, such as yarn.io/gpu. A resource of which the
// configuration does not say what YARN calls it is not asked for there, as in Flink.
//
// Errors: one line that names the key: an amount that is missing or no whole number above 0, a resource that external-resources does not list,
// a key that external resources do not have.
//
// Source: Flink 2.x ExternalResourceOptions, ExternalResourceUtils.getExternalResourceConfigurationKeys, YarnConfigOptions.
func ExternalAmounts(c Configuration) (map[string]int64, error) {
	amounts, names := map[string]int64{}, map[string]bool{}
	for _, name := range ExternalResources.Value(c) {
		if name == "none" {
			continue
		}
		names[name] = true
		key := externalPrefix + name + ".amount"
		n, err := strconv.ParseInt(strings.TrimSpace(c[key]), 10, 64)
		switch {
		case c[key] == "":
			return nil, fmt.Errorf("%s is not set: %s lists %s: say how many a TaskManager gets", key, ExternalResources.Key, name)
		case err != nil || n < 1:
			return nil, fmt.Errorf("%s = %q: want a whole number above 0", key, c[key])
		}
		if yarn := strings.TrimSpace(c[externalPrefix+name+".yarn.config-key"]); yarn != "" {
			amounts[yarn] += n
		}
	}
	for key := range c {
		rest, ours := strings.CutPrefix(key, externalPrefix)
		if !ours {
			continue
		}
		name, isAmount := strings.CutSuffix(rest, ".amount")
		if !isAmount {
			var isKey bool
			if name, isKey = strings.CutSuffix(rest, ".yarn.config-key"); !isKey {
				return nil, fmt.Errorf("%s: there is no such key: a resource has .amount and .yarn.config-key; which devices it is, the program finds out", key)
			}
		}
		if !names[name] {
			return nil, fmt.Errorf("%s is set, but %s does not list %s", key, ExternalResources.Key, name)
		}
	}
	return amounts, nil
}
