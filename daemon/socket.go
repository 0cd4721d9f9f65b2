package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"time"

	"mediasandbox/daemon/config"
)

// maxSocketPath is what a Unix socket's address holds, in bytes.
const maxSocketPath = 107

// listenUnix makes the socket. A live owner's and what is no socket are left
// alone; one that nobody answers on is replaced.
func listenUnix(path, group string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path is longer than %d bytes", path, maxSocketPath)
	}
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := shareSocket(path, group); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

func clearSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("something that is no socket is there: move it away")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(errors.New("another daemon is listening there"), conn.Close())
	}
	return os.Remove(path)
}

// checkGroups makes sure that the groups of the configuration exist, before
// anything is begun.
func checkGroups(a config.Access) error {
	named := map[string][]string{"access.operator_groups": a.OperatorGroups}
	if a.Group != "" {
		named["access.group"] = []string{a.Group}
	}
	for key, groups := range named {
		for _, g := range groups {
			if _, err := user.LookupGroup(g); err != nil {
				return fmt.Errorf("%s: %w: make it with `groupadd --system %s`, or take it out of the configuration", key, err, g)
			}
		}
	}
	return nil
}

// shareSocket lets the group connect.
func shareSocket(path, group string) error {
	if group == "" {
		return os.Chmod(path, 0o600)
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("share the socket: access.group: %w", err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("share the socket: gid %q: %w", g.Gid, err)
	}
	if err := os.Chown(path, 0, gid); err != nil {
		return fmt.Errorf("share the socket: %w", err)
	}
	return os.Chmod(path, 0o660)
}
