package guest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"mediasandbox/runtime/sandbox"
)

// maxJournal bounds how much of a journal is read, in bytes.
const maxJournal = 64 << 20

// FileState is the state in which a file was closed.
type FileState struct {
	Size int64
	// MTime is in nanoseconds since 1970.
	MTime int64
}

// ClosedFiles reads the journal on a sandbox's disk: the last state in which
// each file below /outputs was closed, by its path in the guest. It comes from
// the guest: it says which of its own files the guest takes for finished.
func ClosedFiles(disk string) (map[string]FileState, error) {
	closed := make(map[string]FileState)
	root, err := os.OpenRoot(filepath.Join(disk, sandbox.JournalDir))
	if errors.Is(err, os.ErrNotExist) {
		return closed, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of closed files: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile("closed", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return closed, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal of closed files: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxJournal))
	for lines.Scan() {
		var c Closed
		if json.Unmarshal(lines.Bytes(), &c) == nil { // else cut off by the end, or not ours
			closed[string(c.Path)] = FileState{c.Size, c.MTime}
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("read the journal of closed files: %w", err)
	}
	return closed, nil
}
