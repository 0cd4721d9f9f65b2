package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// volatile is what a build leaves behind in every tree: logs, caches with
// times or inode numbers in them, copies of the host's names, apt's and dpkg's
// settings for the build, device nodes.
var volatile = []string{
	"/dev/*", "/proc/*", "/run/*", "/sys/*", "/tmp/*", "/var/tmp/*",
	"/var/log/*", "/var/backups/*", "/var/spool/cron/*",
	"/var/cache/apt/*", "/var/cache/debconf/*-old", "/var/cache/ldconfig/*",
	"/var/lib/apt/lists/*", "/var/lib/apt/periodic/*",
	"/var/lib/dpkg/*-old", "/var/lib/dpkg/lock*", "/var/lib/dpkg/triggers/Lock",
	"/var/lib/dbus/machine-id", "/var/lib/systemd/random-seed",
	"/etc/*-", "/etc/.pwd.lock", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id",
	"/etc/apt/apt.conf.d/99mmdebstrap", "/etc/dpkg/dpkg.cfg.d/99mmdebstrap",
	"/root/.cache", "/root/.config", "/root/.local",
}

// tree is the root file system of an image while it is made. It is reached
// through os.Root: no link in it leads to the host's files.
type tree struct{ root *os.Root }

// relative turns a path of the image into one os.Root takes.
func relative(p string) string { return strings.TrimPrefix(path.Clean(p), "/") }

// remove removes what matches the patterns.
func (t tree) remove(patterns []string) error {
	for _, pattern := range patterns {
		found, err := fs.Glob(t.root.FS(), relative(pattern))
		if err != nil {
			return fmt.Errorf("remove %s from the image: %w", pattern, err)
		}
		for _, p := range found {
			if err := t.root.RemoveAll(p); err != nil {
				return fmt.Errorf("remove %s from the image: %w", p, err)
			}
		}
	}
	return nil
}

// makeDirectories makes the recipe's directories.
func (t tree) makeDirectories(directories []Directory) error {
	for _, d := range directories {
		p := relative(d.Path)
		if err := t.mkdirAll(p); err != nil {
			return fmt.Errorf("make directory %s in the image: %w", d.Path, err)
		}
		if err := t.root.Chmod(p, fileMode(d.Mode)); err != nil {
			return fmt.Errorf("make directory %s in the image: %w", d.Path, err)
		}
	}
	return nil
}

// mkdirAll makes a directory and those above it, for all to enter whatever the
// builder's umask is.
func (t tree) mkdirAll(p string) error {
	if info, err := t.root.Stat(p); err == nil && info.IsDir() {
		return nil
	}
	if err := t.mkdirAll(path.Dir(p)); err != nil {
		return err
	}
	if err := t.root.Mkdir(p, 0o755); err != nil {
		return err
	}
	return t.root.Chmod(p, 0o755)
}

// fileMode turns Unix permission bits into Go's.
func fileMode(mode uint32) os.FileMode {
	m := os.FileMode(mode & 0o777)
	for _, special := range []struct {
		bit  uint32
		mode os.FileMode
	}{{0o4000, os.ModeSetuid}, {0o2000, os.ModeSetgid}, {0o1000, os.ModeSticky}} {
		if mode&special.bit != 0 {
			m |= special.mode
		}
	}
	return m
}

// writeFiles writes the recipe's files. Content that begins with a line break
// loses it, so that recipes can set text apart.
func (t tree) writeFiles(files []File) error {
	for _, f := range files {
		if err := t.writeFile(f); err != nil {
			return fmt.Errorf("write %s in the image: %w", f.Path, err)
		}
	}
	return nil
}

func (t tree) writeFile(f File) error {
	p := relative(f.Path)
	if err := t.mkdirAll(path.Dir(p)); err != nil {
		return err
	}
	// Removed first: it may be a link.
	if err := t.root.RemoveAll(p); err != nil {
		return err
	}
	if err := t.root.WriteFile(p, []byte(strings.TrimPrefix(f.Content, "\n")), 0o644); err != nil {
		return err
	}
	return t.root.Chmod(p, fileMode(f.Mode))
}

// fixShadow sets the day of the last password change of every account to the
// day of mtime.
func (t tree) fixShadow(mtime int64) error {
	data, err := t.root.ReadFile("etc/shadow")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the image's shadow file: %w", err)
	}
	day := strconv.FormatInt(mtime/86400, 10)
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[2] != "" {
			fields[2] = day
			lines[i] = strings.Join(fields, ":")
		}
	}
	if err := t.root.WriteFile("etc/shadow", []byte(strings.Join(lines, "\n")), 0o640); err != nil {
		return fmt.Errorf("write the image's shadow file: %w", err)
	}
	return nil
}

// sortStanzas puts the stanzas of a Debian control file in order.
func (t tree) sortStanzas(name string) error {
	data, err := t.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sort the image's %s: %w", name, err)
	}
	stanzas := strings.Split(strings.Trim(string(data), "\n"), "\n\n")
	slices.Sort(stanzas)
	if err := t.root.WriteFile(name, []byte(strings.Join(stanzas, "\n\n")+"\n\n"), 0o644); err != nil {
		return fmt.Errorf("sort the image's %s: %w", name, err)
	}
	return nil
}

// writeSources replaces what mmdebstrap wrote into the image's apt sources by
// one form of it, and returns the sources.
func (t tree) writeSources() ([]source, error) {
	sources, err := readSources(filepath.Join(t.root.Name(), "etc/apt"))
	if err != nil {
		return nil, err
	}
	if err := t.remove([]string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*"}); err != nil {
		return nil, err
	}
	return sources, t.writeFile(File{Path: "/etc/apt/sources.list.d/debian.sources", Mode: 0o644, Content: deb822(sources)})
}
