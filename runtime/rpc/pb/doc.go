// Package pb holds the generated messages of the control plane (runtime.proto).
package pb

//go:generate protoc -I . --go_out=. --go_opt=paths=source_relative runtime.proto
