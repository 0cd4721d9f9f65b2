package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/internal/treetar"
)

// isDir tells whether a path of this host is a directory.
func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// putTree sends a directory of this host. Nothing of it is kept in the sandbox
// unless all of it arrives.
func putTree(c *cli.Context, cl *client.Client, chat, from, to string, replace bool) (api.FileInfo, error) {
	root, err := os.OpenRoot(from)
	if err != nil {
		return api.FileInfo{}, usagef("%v", err)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := treetar.Pack(root, w, func(name string, mode fs.FileMode) error {
			return usagef("%s is neither a file nor a directory (%s): leave it out, or put what it stands for in its place",
				filepath.Join(from, name), mode.Type())
		})
		w.CloseWithError(err)
		packed <- err
	}()
	info, err := cl.PutTree(c.Context, chat, to, replace, r)
	r.CloseWithError(io.ErrClosedPipe) // a daemon that refuses does not read to the end
	// What we could not read ourselves is the reason, whatever the daemon made of it.
	if own := <-packed; own != nil && !errors.Is(own, io.ErrClosedPipe) {
		err = own
	}
	return info, errors.Join(err, root.Close())
}

// getTree copies a directory of the sandbox to a new one of this host.
func getTree(c *cli.Context, cl *client.Client, from string) error {
	chat, to := c.String("chat"), c.String("output")
	if to == "-" {
		end, err := cl.GetTree(c.Context, chat, from, func(r io.Reader) error {
			_, err := io.Copy(c.App.Writer, r)
			return err
		})
		noteSkipped(c, end)
		return err
	}
	if isDir(to) {
		to = filepath.Join(to, safeName(filepath.Base(from), 0))
	}
	if _, err := os.Lstat(to); err == nil {
		return usagef("%s exists: name another directory with -o", to)
	}
	end, err := saveTree(to, func(read func(io.Reader) error) (api.TreeEnd, error) {
		return cl.GetTree(c.Context, chat, from, read)
	})
	noteSkipped(c, end)
	if err != nil {
		return fmt.Errorf("save %s: %w", to, err)
	}
	if wantJSON(c) {
		return printJSON(c, savedFile{Type: "directory", Path: to})
	}
	_, err = fmt.Fprintln(c.App.Writer, to)
	return err
}

// saveTree unpacks what get reads as the directory to, whole or not at all.
func saveTree(to string, get func(func(io.Reader) error) (api.TreeEnd, error)) (end api.TreeEnd, err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".sandboxctl-*")
	if err != nil {
		return end, exitStatus{exitUsage, err.Error()}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	var st unix.Statfs_t
	if err := unix.Statfs(tmp, &st); err != nil {
		return end, fmt.Errorf("look at the disk: %w", err)
	}
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return end, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// A guest can make files that claim more than there is.
	u := treetar.Unpacker{Root: root, Room: int64(st.Bavail) * st.Bsize}
	if end, err = get(u.Unpack); err != nil {
		return end, err
	}
	return end, errors.Join(os.Chmod(tmp, 0o755), os.Rename(tmp, to))
}

func noteSkipped(c *cli.Context, end api.TreeEnd) {
	if end.Skipped == 0 {
		return
	}
	fmt.Fprintf(c.App.ErrWriter, "note: %d left out, which are neither files nor directories: %s\n", end.Skipped, printable(strings.Join(end.Names, ", ")))
}
