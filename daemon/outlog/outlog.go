// Package outlog keeps the output of one stream of a command on disk, bounded:
// the first half and the last half of its limit, and the true count of what
// was dropped between. Any number of readers follow it from any offset.
//
// A log is one file, written in place:
//
//	0           magic "mslog1\n" and a zero byte
//	8           uint64 limit (bytes kept)
//	16          uint64 length of the stream so far
//	24          1 when the stream has ended
//	32          the first limit/2 bytes of the stream
//	32+limit/2  a ring of the last limit/2 bytes after those
//
// Data is written before the length, so that a process that dies between the
// two is told the same bytes again. The file survives the death of its writer;
// it is not synced against the death of the host.
package outlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

const (
	magic      = "mslog1\n\x00"
	headerSize = 32
)

// Log is one stream. It is safe for one writer and many readers.
type Log struct {
	file *os.File
	half int64

	// mu guards everything below.
	mu     sync.Mutex
	length int64
	ended  bool
	// grown is closed and replaced when length or ended changes.
	grown chan struct{}
}

// Create makes the log at path; limit is in bytes.
func Create(path string, limit int64) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make output log: %w", err)
	}
	l := &Log{file: f, half: limit / 2, grown: make(chan struct{})}
	head := make([]byte, headerSize)
	copy(head, magic)
	binary.LittleEndian.PutUint64(head[8:], uint64(limit))
	if _, err := f.WriteAt(head, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("make output log: %w", err), f.Close())
	}
	return l, nil
}

// Open opens a log that was made before, to read it or to go on writing.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open output log: %w", err)
	}
	head := make([]byte, headerSize)
	if _, err := f.ReadAt(head, 0); err != nil || string(head[:8]) != magic {
		return nil, errors.Join(fmt.Errorf("open output log %s: it is damaged", path), err, f.Close())
	}
	return &Log{
		file:   f,
		half:   int64(binary.LittleEndian.Uint64(head[8:])) / 2,
		length: int64(binary.LittleEndian.Uint64(head[16:])),
		ended:  head[24] == 1,
		grown:  make(chan struct{}),
	}, nil
}

// Close lets go of the file.
func (l *Log) Close() error { return l.file.Close() }

// Size returns the length of the stream and how many of its bytes were dropped.
func (l *Log) Size() (length, dropped int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length, max(0, l.length-2*l.half)
}

// Append writes data at offset, which must be the stream's length.
func (l *Log) Append(offset int64, data []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset != l.length || l.ended {
		return fmt.Errorf("append output at %d: the log ends at %d", offset, l.length)
	}
	end := offset + int64(len(data))
	for len(data) > 0 {
		at, room := l.place(offset)
		n := min(int64(len(data)), room)
		if _, err := l.file.WriteAt(data[:n], at); err != nil {
			return fmt.Errorf("append output: %w", err)
		}
		data = data[n:]
		offset += n
	}
	if err := l.writeLength(end); err != nil {
		return err
	}
	l.length = end
	l.notify()
	return nil
}

// place says where the byte at a stream offset lies in the file, and how many
// bytes after it lie there in one piece.
func (l *Log) place(offset int64) (at, room int64) {
	if offset < l.half {
		return headerSize + offset, l.half - offset
	}
	in := (offset - l.half) % l.half
	return headerSize + l.half + in, l.half - in
}

func (l *Log) writeLength(n int64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	if _, err := l.file.WriteAt(b[:], 16); err != nil {
		return fmt.Errorf("append output: %w", err)
	}
	return nil
}

// End says that nothing more comes.
func (l *Log) End() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	if _, err := l.file.WriteAt([]byte{1}, 24); err != nil {
		return fmt.Errorf("end output log: %w", err)
	}
	l.ended = true
	l.notify()
	return nil
}

func (l *Log) notify() {
	close(l.grown)
	l.grown = make(chan struct{})
}

// ReadAt returns what is kept from offset on, at most len(buf) bytes, and the
// offset at which it begins: higher than asked when the bytes between were
// dropped. At the end of an ended log it returns io.EOF. With wait it waits
// for more instead of returning nothing.
func (l *Log) ReadAt(ctx context.Context, buf []byte, offset int64, wait bool) (n int, from int64, err error) {
	for {
		l.mu.Lock()
		n, from, err = l.read(buf, offset)
		ended, grown := l.ended, l.grown
		l.mu.Unlock()
		switch {
		case n > 0 || err != nil:
			return n, from, err
		case ended:
			return 0, from, io.EOF
		case !wait:
			return 0, from, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return 0, from, ctx.Err()
		}
	}
}

func (l *Log) read(buf []byte, offset int64) (int, int64, error) {
	if kept := l.length - l.half; offset >= l.half && offset < kept {
		offset = kept
	}
	at, room := l.place(offset)
	n := min(room, int64(len(buf)), l.length-offset)
	if n <= 0 {
		return 0, offset, nil
	}
	if _, err := l.file.ReadAt(buf[:n], at); err != nil {
		return 0, offset, fmt.Errorf("read output: %w", err)
	}
	return int(n), offset, nil
}
