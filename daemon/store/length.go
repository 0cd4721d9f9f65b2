package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The layout of a bbolt file's two first pages (go.etcd.io/bbolt,
// internal/common/meta.go): offsets in bytes from the page's begin.
const (
	metaMagic    = 0xED0CDAED
	metaBegin    = 16
	metaPageSize = 24
	metaPages    = 56
	metaTx       = 64
	metaChecksum = 72
	metaEnd      = 80
)

// checkLength refuses a file that is shorter than its newest valid head says:
// bbolt maps the file, and reading beyond its end would kill the process.
func checkLength(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var newest, need uint64
	for i := range int64(2) {
		head := make([]byte, metaEnd)
		if _, err := f.ReadAt(head, i*int64(os.Getpagesize())); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			return err
		}
		if tx, bytes, ok := readMeta(head); ok && tx >= newest {
			newest, need = tx, bytes
		}
	}
	if need > uint64(st.Size()) {
		return fmt.Errorf("it is cut off: %d bytes, of %d: restore it from a backup, or move it away to begin anew", st.Size(), need)
	}
	return nil
}

// readMeta returns the transaction that wrote a head, and how many bytes the
// file has by it. A head that is not valid is bbolt's to judge.
func readMeta(head []byte) (tx, bytes uint64, ok bool) {
	sum := fnv.New64a()
	sum.Write(head[metaBegin:metaChecksum])
	if binary.NativeEndian.Uint32(head[metaBegin:]) != metaMagic || binary.NativeEndian.Uint64(head[metaChecksum:]) != sum.Sum64() {
		return 0, 0, false
	}
	size := uint64(binary.NativeEndian.Uint32(head[metaPageSize:]))
	return binary.NativeEndian.Uint64(head[metaTx:]), size * binary.NativeEndian.Uint64(head[metaPages:]), true
}
