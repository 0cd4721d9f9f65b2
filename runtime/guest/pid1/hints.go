package pid1

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"mediasandbox/runtime/guest"
)

// watchOutputs delivers the path of each file below dir that its writer closes
// or that is renamed into place. Inside gVisor these events are exact, while
// the host's are not. New directories are followed, and what is already in
// them is delivered as well. Each close is also written to the journal, which
// is a file of the host: what it says outlives the sandbox.
func watchOutputs(dir, journal string) (<-chan string, error) {
	log, err := os.OpenFile(journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal of closed files: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &hintWatch{fd: fd, dirs: make(map[int32]string), out: make(chan string, 256), journal: log}
	if err := w.add(dir); err != nil {
		unix.Close(fd)
		return nil, err
	}
	go w.run()
	return w.out, nil
}

type hintWatch struct {
	fd   int
	dirs map[int32]string
	out  chan string

	journal *os.File
}

const hintMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

func (w *hintWatch) add(dir string) error {
	wd, err := unix.InotifyAddWatch(w.fd, dir, hintMask)
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	w.dirs[int32(wd)] = dir
	return nil
}

// closed journals and hints a file.
func (w *hintWatch) closed(path string) {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		c := guest.Closed{Path: []byte(path), Size: st.Size(), MTime: st.ModTime().UnixNano()}
		if line, err := json.Marshal(c); err == nil {
			// Without it the file is not published if the sandbox is killed.
			_, _ = w.journal.Write(append(line, '\n'))
		}
	}
	w.out <- path
}

// addTree watches a directory that has just appeared, and what is below it.
// Files whose close came before the watch are found by their not being open.
func (w *hintWatch) addTree(dir string) {
	if w.add(dir) != nil {
		return // gone again, or a link; the scan at the command's end decides
	}
	open, err := openForWriting("/proc", dir)
	if err != nil {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			w.addTree(path)
		} else if !slices.Contains(open, path) {
			w.closed(path)
		}
	}
}

func (w *hintWatch) run() {
	defer close(w.out)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			rest = w.event(rest)
		}
	}
}

// event acts on the first event in b and returns the rest.
func (w *hintWatch) event(b []byte) []byte {
	wd := int32(binary.NativeEndian.Uint32(b))
	mask := binary.NativeEndian.Uint32(b[4:])
	end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
	name := string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))
	dir, ok := w.dirs[wd]
	switch {
	case mask&unix.IN_IGNORED != 0:
		delete(w.dirs, wd)
	case !ok || name == "":
	case mask&unix.IN_ISDIR != 0:
		w.addTree(filepath.Join(dir, name))
	case mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		w.closed(filepath.Join(dir, name))
	}
	return b[end:]
}
