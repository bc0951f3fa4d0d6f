// Package pb holds the generated gRPC services of the control plane (service.proto).
package pb

//go:generate protoc -I . -I ../../pb --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative service.proto
