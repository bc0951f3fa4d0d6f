// Package webui holds the status page that the cluster serves at /: one file, no external assets, relative URLs only, so that it
// works behind the ResourceManager's proxy. It is layer L3; it reads Flink's REST paths like any other client.
package webui

import (
	_ "embed"
	"net/http"
)

//go:embed index.html
var index []byte

// Handler serves the page.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=UTF-8")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'")
		_, _ = w.Write(index) // the client is gone
	})
}
