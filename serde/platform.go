//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le)

package serde

// Encodings are the little-endian memory forms of 64-bit platforms, so that runs of fixed-width fields are copied at once.
var _ = thisPlatformIsNot64BitLittleEndian
