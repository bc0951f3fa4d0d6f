package config

//go:generate go run ./gen ../docs/config.md

import (
	"fmt"
	"strings"
)

// Markdown is the reference of all options, as kept in docs/config.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Options\n\nGenerated from the registry (`go generate ./config`); do not edit. Options come from `config.yaml` (in\n`$THALWEG_CONF_DIR`, else `conf/` beside the binary or one folder above), then `-Dkey=value`, later ones win. An unknown key is an error.\n" +
		"Durations carry a unit (`30 s`, `100 ms`, `1 min`; none means milliseconds), sizes too (`512mb`, `1gb`; none means bytes).\n" +
		"Prefixes that pass through unchecked: `" + strings.Join(Passthrough(), "`, `") + "`.\n")
	section := ""
	for _, k := range Keys() {
		e := registry[k]
		if s, _, _ := strings.Cut(k, "."); s != section {
			section = s
			fmt.Fprintf(&b, "\n## %s\n\n| Key | Default | Meaning |\n|---|---|---|\n", section)
		}
		def := e.defaultText()
		if def == "" {
			def = "(none)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k, def, strings.ReplaceAll(e.doc(), "|", "\\|"))
	}
	return b.String()
}

// Description is an option as text.
type Description struct {
	Key     string `json:"key"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// All describes the registered options, by key.
func All() []Description {
	var out []Description
	for _, k := range Keys() {
		out = append(out, Description{k, registry[k].defaultText(), registry[k].doc()})
	}
	return out
}
