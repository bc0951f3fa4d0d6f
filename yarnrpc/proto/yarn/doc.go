// Package yarnpb holds the generated messages of YARN's protocols, with Hadoop's field numbers.
package yarnpb
