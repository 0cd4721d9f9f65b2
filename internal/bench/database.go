package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// bbolt's file begins with two meta pages that are written in turn: 16 bytes of
// page header, then magic, version, page size, flags (4 bytes each), root
// bucket (16), free list (8), high-water mark (8), transaction id (8).
const (
	metaMagicAt = 16
	metaTxAt    = 16 + 16 + 16 + 8 + 8
	metaMagic   = 0xED0CDAED
)

// transactions is the id of the last commit of the daemon's database.
func (d *daemon) transactions() (uint64, error) {
	f, err := os.Open(filepath.Join(d.cfg.Paths.StateDir, "state.db"))
	if err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	defer f.Close()
	page := os.Getpagesize() // what bbolt made the file with
	head := make([]byte, 2*page)
	if _, err := f.ReadAt(head, 0); err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	last, err := lastTransaction(head, page)
	if err != nil {
		return 0, fmt.Errorf("count commits: %w", err)
	}
	return last, nil
}

func lastTransaction(head []byte, page int) (uint64, error) {
	last := uint64(0)
	for _, meta := range [][]byte{head[:page], head[page:]} {
		if binary.NativeEndian.Uint32(meta[metaMagicAt:]) != metaMagic {
			return 0, errors.New("the database's meta pages are not understood")
		}
		last = max(last, binary.NativeEndian.Uint64(meta[metaTxAt:]))
	}
	return last, nil
}

// measureSync times what makes a commit durable: writing a page in the middle
// of a file that has its size already, and fdatasync.
func (b *bench) measureSync(d *daemon) (took sample, err error) {
	f, err := os.CreateTemp(d.cfg.Paths.StateDir, "sync-")
	if err != nil {
		return nil, fmt.Errorf("time fdatasync: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, 4096)
	if _, err := f.WriteAt(make([]byte, 64*len(page)), 0); err != nil {
		return nil, fmt.Errorf("time fdatasync: %w", err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("time fdatasync: %w", err)
	}
	for i := range cheap * b.samples {
		page[0] = byte(i)
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i%64)*int64(len(page))); err != nil {
			return nil, fmt.Errorf("time fdatasync: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, fmt.Errorf("time fdatasync: %w", err)
		}
		took.add(time.Since(began))
	}
	return took, nil
}
