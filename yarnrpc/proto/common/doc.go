// Package commonpb holds the generated messages of Hadoop's IPC and security layers, with Hadoop's field numbers.
package commonpb
