package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mediasandbox/runtime/guest"
)

// commandsGroup is the cgroup above the commands' own. It bounds the processes
// that all of them have together: PID 1 and the warm Python are outside, so
// that a fork bomb does not keep the host from being answered.
//
// Guest root can change the bound; the host's own, around the sandbox, stays.
type commandsGroup struct {
	dir string
	// events counts what was refused; nil without a bound.
	events *os.File
	// made counts the groups of single commands.
	made *atomic.Int64
}

// boundCommands makes the group below the root of the guest's cgroup tree.
func boundCommands(root string, pids int64) (commandsGroup, error) {
	c := commandsGroup{dir: filepath.Join(root, "commands"), made: new(atomic.Int64)}
	if err := os.Mkdir(c.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return c, fmt.Errorf("make the commands' cgroup: %w", err)
	}
	if pids == 0 {
		return c, nil
	}
	if err := setControl(root, "cgroup.subtree_control", "+pids"); err != nil {
		return c, err
	}
	if err := setControl(c.dir, "pids.max", strconv.FormatInt(pids, 10)); err != nil {
		return c, err
	}
	events, err := os.Open(filepath.Join(c.dir, "pids.events.local"))
	if err != nil {
		return c, fmt.Errorf("watch the commands' cgroup: %w", err)
	}
	c.events = events
	return c, nil
}

// add makes the cgroup of one command.
func (c commandsGroup) add() (commandGroup, error) {
	name := "command-" + strconv.FormatInt(c.made.Add(1), 10)
	g := commandGroup{dir: filepath.Join(c.dir, name), above: c}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return commandGroup{}, fmt.Errorf("make the command's cgroup: %w", err)
	}
	return g, nil
}

// refusals counts the forks that were refused so far for the bound.
func (c commandsGroup) refusals() int64 {
	if c.events == nil {
		return 0
	}
	var text [32]byte // "max N"
	n, _ := c.events.ReadAt(text[:], 0)
	count, _ := bytes.CutPrefix(bytes.TrimSpace(text[:n]), []byte("max "))
	// What can't be read, since the guest removed the group, refused none.
	refused, _ := strconv.ParseInt(string(count), 10, 64)
	return refused
}

// commandGroup holds a command's main process and all its descendants. Its zero
// value is that of a command that was never started.
type commandGroup struct {
	dir   string
	above commandsGroup
	// before is what had been refused when the command began.
	before int64
}

// move brings a process into the group.
func (g commandGroup) move(pid int) error {
	return setControl(g.dir, "cgroup.procs", strconv.Itoa(pid))
}

// kill ends every process of the group.
func (g commandGroup) kill() error {
	if g.dir == "" {
		return nil
	}
	return setControl(g.dir, "cgroup.kill", "1")
}

// exists tells whether the guest has left the group alone.
func (g commandGroup) exists() bool {
	_, err := os.Stat(g.dir)
	return err == nil
}

// processes counts those of the group; none when the guest has removed it.
func (g commandGroup) processes() int {
	pids, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return 0
	}
	return bytes.Count(pids, []byte("\n"))
}

// refused tells whether a fork failed for the bound while the command ran.
func (g commandGroup) refused() bool { return g.above.refusals() > g.before }

// remove takes the group away once its last process is reaped.
func (g commandGroup) remove() {
	if g.dir == "" {
		return
	}
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err := os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(wait)
	}
}

func setControl(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("set a cgroup's %s: %w", file, err)
	}
	return nil
}

// writing names the files below dir that the command's processes hold open for
// writing.
func (g commandGroup) writing(dir string) [][]byte {
	pids, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil // the guest has removed the group
	}
	found := make(map[string]struct{})
	for pid := range strings.FieldsSeq(string(pids)) {
		openDescriptors(filepath.Join("/proc", pid), dir, found)
		writableMappings(filepath.Join("/proc", pid), dir, found)
	}
	var paths [][]byte
	for path := range found {
		if len(paths) < guest.MaxPaths {
			paths = append(paths, []byte(path))
		}
	}
	return paths
}
