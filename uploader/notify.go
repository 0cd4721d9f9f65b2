package uploader

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// notifier is what the watcher uses of fsnotify.
type notifier struct {
	events <-chan fsnotify.Event
	errors <-chan error
	add    func(path string) error
	remove func(path string) error
	close  func() error
}

func newNotifier() (notifier, error) {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return notifier{}, fmt.Errorf("start fsnotify: %w", err)
	}
	return notifier{events: n.Events, errors: n.Errors, add: n.Add, remove: n.Remove, close: n.Close}, nil
}

// errScanOnly is why no directory is watched by a notifier without events.
var errScanOnly = errors.New("no inotify instance is left (fs.inotify.max_user_instances)")

// scanOnly is a notifier without events.
func scanOnly() notifier {
	return notifier{
		add:    func(string) error { return errScanOnly },
		remove: func(string) error { return nil },
		close:  func() error { return nil },
	}
}

// inode names a file whatever its path.
type inode struct{ dev, ino uint64 }

func (id Identity) inode() inode { return inode{id.Dev, id.Inode} }

// watch is a directory from which events come. It is named to fsnotify by its
// descriptor (token), not by its path: a path could be swapped for a link
// between our look and fsnotify's, a descriptor cannot.
type watch struct {
	token string
	fd    int
	dir   inode
	path  Path
	// scan is the last full scan that met the directory.
	scan uint64
}

// watches knows which directories are watched, and under which path each was
// last seen.
type watches struct {
	notify  notifier
	max     int
	byDir   map[inode]*watch
	byToken map[string]*watch
	// missing is set when a directory could not be watched.
	missing error
}

var errTooManyWatches = errors.New("limit of watched directories is reached")

func newWatches(n notifier, max int) *watches {
	return &watches{notify: n, max: max, byDir: map[inode]*watch{}, byToken: map[string]*watch{}}
}

// ensure watches the directory fd, seen at p during the given scan.
func (t *watches) ensure(p Path, fd int, dir inode, scan uint64) {
	if w := t.byDir[dir]; w != nil {
		w.path, w.scan = p, scan
		return
	}
	if len(t.byDir) >= t.max {
		t.missing = errTooManyWatches
		return
	}
	held, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.missing = fmt.Errorf("hold directory %s: %w", p, err)
		return
	}
	w := &watch{token: fmt.Sprintf("/proc/self/fd/%d", held), fd: held, dir: dir, path: p, scan: scan}
	if err := t.notify.add(w.token); err != nil {
		unix.Close(held)
		t.missing = fmt.Errorf("watch directory %s: %w", p, err)
		return
	}
	t.byDir[dir] = w
	t.byToken[w.token] = w
}

// find returns the watch an event came from and the name in it; the name is
// empty for an event of the directory itself.
func (t *watches) find(name string) (*watch, string) {
	if w := t.byToken[name]; w != nil {
		return w, ""
	}
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return nil, ""
	}
	return t.byToken[name[:i]], name[i+1:]
}

// drop ends a watch. fsnotify may have ended it already, since it does so by
// itself when a directory is moved or removed: its answer says nothing then.
func (t *watches) drop(w *watch) {
	delete(t.byDir, w.dir)
	delete(t.byToken, w.token)
	_ = t.notify.remove(w.token)
	unix.Close(w.fd)
}

// dropBelow drops the watches of p and of all below it.
func (t *watches) dropBelow(p Path) {
	for _, w := range t.byDir {
		if under(w.path, p) {
			t.drop(w)
		}
	}
}

// sweep drops the watches of directories that a full scan did not meet.
func (t *watches) sweep(scan uint64) {
	for _, w := range t.byDir {
		if w.scan != scan {
			t.drop(w)
		}
	}
}

// close ends all. The notifier is closed first, so that no descriptor is
// reused while it may still be named.
func (t *watches) close() error {
	err := t.notify.close()
	for _, w := range t.byDir {
		unix.Close(w.fd)
	}
	if err != nil {
		return fmt.Errorf("stop fsnotify: %w", err)
	}
	return nil
}

// under says whether p is dir or below it.
func under(p, dir Path) bool {
	return dir == "" || p == dir || strings.HasPrefix(string(p), string(dir)+"/")
}
