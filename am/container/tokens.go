package container

import (
	"fmt"
	"path/filepath"

	"github.com/thalweg/thalweg/yarnrpc/token"
)

// TokenFile is where a process of an application keeps the tokens of the file systems, for itself and for the processes of its jobs. It
// is replaced when there are newer ones, and has nothing else of the container's credentials: user code shall not see these.
type TokenFile struct{ Path string }

// NewTokenFile writes the tokens of the container's credentials into a file in a folder that only its owner can read.
func NewTokenFile(dir string, c *token.Credentials) (*TokenFile, error) {
	f := &TokenFile{Path: filepath.Join(dir, "tokens")}
	return f, f.Write(c)
}

// Write replaces the tokens.
func (f *TokenFile) Write(c *token.Credentials) error {
	if err := token.WriteFile(f.Path, FileTokens(c), token.Writable); err != nil {
		return fmt.Errorf("container: %w", err)
	}
	return nil
}

// Replace is Write for the bytes of a credentials file.
func (f *TokenFile) Replace(credentials []byte) error {
	c, err := token.Decode(credentials)
	if err != nil {
		return fmt.Errorf("container: security tokens: %w", err)
	}
	return f.Write(c)
}

// Environment is what the processes of jobs need to find the file, as KEY=value.
func (f *TokenFile) Environment() string { return token.EnvFile + "=" + f.Path }

// FileTokens are the tokens of file systems among c.
func FileTokens(c *token.Credentials) *token.Credentials {
	out := &token.Credentials{}
	for _, a := range c.Aliases() {
		if t, _ := c.Token(a); t.Kind == token.KindHDFSDelegation {
			out.Put(a, t)
		}
	}
	return out
}
