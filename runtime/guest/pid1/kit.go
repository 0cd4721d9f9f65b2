package pid1

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kit is what a command without a terminal needs before it can be started: a
// cgroup and its output pipes. One is made ahead, since the dozen system calls
// for it take a fifth of the time of a short command.
type kit struct {
	group commandGroup
	// dir is the cgroup, for the fork into it.
	dir *os.File
	// null, and the ends that the command writes to.
	child []*os.File
	// outR and errR are the ends that are read.
	outR, errR *os.File
}

// makeKit makes a kit; after an error nothing of it is left.
func (t *table) makeKit() (*kit, error) {
	group, err := t.cgroup.add()
	if err != nil {
		return nil, err
	}
	k := &kit{group: group}
	if err := k.open(); err != nil {
		k.close()
		group.remove()
		return nil, err
	}
	return k, nil
}

func (k *kit) open() error {
	var err error
	if k.dir, err = os.Open(k.group.dir); err != nil {
		return fmt.Errorf("open the command's cgroup: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("make stdin: %w", err)
	}
	k.child = append(k.child, null)
	for _, near := range []**os.File{&k.outR, &k.errR} {
		r, w, err := outputPipe()
		if err != nil {
			return fmt.Errorf("make an output pipe: %w", err)
		}
		*near = r
		k.child = append(k.child, w)
	}
	return nil
}

// outputPipe makes a pipe of which only the end that is read waits without a
// thread: the other is for a child.
func outputPipe() (r, w *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	w = os.NewFile(uintptr(ends[1]), "output")
	if err := unix.SetNonblock(ends[0], true); err != nil {
		unix.Close(ends[0])
		w.Close()
		return nil, nil, err
	}
	return os.NewFile(uintptr(ends[0]), "output"), w, nil
}

// takeKit returns the kit that was made ahead, or another one when there is none
// or the guest has removed its cgroup.
func (t *table) takeKit() (k *kit, err error) {
	select {
	case k = <-t.kits:
		if !k.group.exists() {
			k.close()
			k = nil
		}
	default:
	}
	if k == nil {
		if k, err = t.makeKit(); err != nil {
			return nil, err
		}
	}
	k.group.before = t.cgroup.refusals()
	return k, nil
}

// refill makes a kit for the next command. Where that fails the next command
// finds out why.
func (t *table) refill() {
	k, err := t.makeKit()
	if err != nil {
		return
	}
	select {
	case t.kits <- k:
	default:
		k.close()
		k.group.remove()
	}
}

// closeReaders closes what a command with a terminal has no use for.
func (k *kit) closeReaders() { closeAll([]*os.File{k.outR, k.errR}) }

func (k *kit) close() {
	k.closeReaders()
	closeAll(append(k.child, k.dir))
}
