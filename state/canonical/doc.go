// Package canonical writes and reads the form of keyed state that every backend understands: savepoints, and all snapshots of the
// hashmap backend. It is part of layer L1, under the backends.
//
// A file holds the state of one operator subtask, ordered by key group, so that a subtask restored at another parallelism reads only
// the groups of its range. Numbers are little-endian, lengths are uvarints.
//
// **Source:** this package; version 1:
//
//	offset  bytes  what
//	0       4      magic "TWKS"
//	4       2      version: 1, or 2 when payloads are compressed
//	6       2      0
//	8       4      n, length of the header
//	12      n      header, JSON: {"maxParallelism","start","end","tables":[{"name","kind","key","value"}]}; key, value: schemas
//	12+n    4      CRC-32C of the header
//	...            key groups start..end-1, one after the other; their offsets are in the state.Handle and in the footer
//
//	a key group is a sequence of chunks:
//	0       4      index of the table or timer set in the header
//	4       4      number of entries, at least 1
//	8       4      n, length of the payload
//	12      4      CRC-32C of the 12 bytes before and of the payload
//	16      n      payload, entries; in version 2 a block of S2 of them (github.com/klauspost/compress/s2, which begins with their length)
//
//	an entry of a table:     8 bytes namespace, length, encoded key, length, encoded value
//	an entry of a timer set: 8 bytes namespace, 8 bytes time, length, encoded key
//
//	footer:
//	        8*(groups+1)   file offset of each key group, and of the footer
//	        4              CRC-32C of the offsets
//	        4              magic "TWKE"
//
// A name is in the header more than once when its values were stored with several schemas and nobody has opened it since, so that they could
// not be brought to one: the newest is the last, and a chunk's entries have the schema of their table.
//
// A chunk's payload is at most about 64 KiB, or one entry. Readers check every checksum before they use what it covers.
package canonical
