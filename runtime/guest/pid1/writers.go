package pid1

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mediasandbox/runtime/guest"
)

// openForWriting names the files below dir that a process holds open for
// writing or has mapped shared and writable. proc is where procfs is mounted.
// A process that ends while it is looked at has nothing open.
func openForWriting(proc, dir string) ([]string, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := make(map[string]struct{})
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		pid := filepath.Join(proc, e.Name())
		openDescriptors(pid, dir, found)
		writableMappings(pid, dir, found)
		if len(found) > guest.MaxPaths {
			return nil, fmt.Errorf("more than %d files are open for writing", guest.MaxPaths)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func openDescriptors(pid, dir string, found map[string]struct{}) {
	fds, err := os.ReadDir(filepath.Join(pid, "fd"))
	if err != nil {
		return
	}
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(pid, "fd", fd.Name()))
		if err != nil || !below(target, dir) {
			continue
		}
		info, err := os.ReadFile(filepath.Join(pid, "fdinfo", fd.Name()))
		if err != nil {
			continue
		}
		if descriptorWrites(string(info)) {
			found[target] = struct{}{}
		}
	}
}

// descriptorWrites reads the open flags out of a fdinfo file. Flags that can't
// be read count as writing: a file is published late rather than half.
func descriptorWrites(fdinfo string) bool {
	for line := range strings.Lines(fdinfo) {
		rest, ok := strings.CutPrefix(line, "flags:")
		if !ok {
			continue
		}
		flags, err := strconv.ParseInt(strings.TrimSpace(rest), 8, 64)
		return err != nil || flags&syscall.O_ACCMODE != syscall.O_RDONLY
	}
	return true
}

func writableMappings(pid, dir string, found map[string]struct{}) {
	f, err := os.Open(filepath.Join(pid, "maps"))
	if err != nil {
		return
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) < 6 || fields[1][1] != 'w' || fields[1][3] != 's' {
			continue
		}
		path := sc.Text()[strings.Index(sc.Text(), fields[5]):]
		if below(path, dir) {
			found[path] = struct{}{}
		}
	}
}

func below(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }
