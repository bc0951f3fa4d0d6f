package fs

import (
	"crypto/rand"
	"encoding/hex"
	"path"
	"strings"
)

const (
	tempSuffix = ".inprogress"
	tempRandom = 8 // bytes, written as hex
)

// TempName returns a fresh name beside p, under which an implementation collects the content of Create with overwrite until Close
// renames it to p. A process that dies leaves it behind; List does not show such names, removing the directory removes them.
func TempName(p string) string {
	var r [tempRandom]byte
	_, _ = rand.Read(r[:]) // never fails, by its contract
	dir, base := path.Split(p)
	return dir + "." + base + "." + hex.EncodeToString(r[:]) + tempSuffix
}

// IsTemp says whether the base name of p was made by TempName.
func IsTemp(p string) bool {
	base := path.Base(p)
	rest, ok := strings.CutSuffix(base, tempSuffix)
	if !ok || !strings.HasPrefix(rest, ".") {
		return false
	}
	i := strings.LastIndexByte(rest, '.')
	if i <= 0 || len(rest)-i-1 != 2*tempRandom {
		return false
	}
	_, err := hex.DecodeString(rest[i+1:])
	return err == nil
}
