package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hostTools maps the programs a build calls to the Debian packages that have
// them.
var hostTools = []struct{ program, debianPackage string }{
	{"mmdebstrap", "mmdebstrap"},
	{"mkfs.erofs", "erofs-utils"},
	{"apt-get", "apt"},
	{"dpkg", "dpkg"},
	{"mount", "mount"},
	{"chroot", "coreutils"},
}

// keyrings are where Debian's keys lie on a host; Debian 13 renamed the file.
var keyrings = []string{keyring, "/usr/share/keyrings/debian-archive-keyring.pgp"}

// checkHost returns one error that names everything a build lacks on this host.
func checkHost() error {
	if os.Geteuid() != 0 {
		return errors.New("building the image needs root: run it with sudo")
	}
	var missing []string
	for _, tool := range hostTools {
		if _, err := exec.LookPath(tool.program); err != nil {
			missing = append(missing, tool.debianPackage)
		}
	}
	if !slices.ContainsFunc(keyrings, exists) {
		missing = append(missing, "debian-archive-keyring")
	}
	if len(missing) > 0 {
		names := strings.Join(missing, " ")
		return fmt.Errorf("building the image needs packages that this host lacks: %s; run: apt-get install %s", names, names)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// checkSpace compares the free space of a directory with what a build needs.
func checkSpace(dir string, needMB int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the free space of %s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize >> 20; free < needMB {
		return fmt.Errorf("building the image needs %d MB of free space in %s, which has %d MB: free some, or name another place with --cache-dir or %s",
			needMB, dir, free, CacheEnv)
	}
	return nil
}

// toolVersions asks the host's tools for their versions.
func toolVersions(ctx context.Context) (map[string]string, error) {
	versions := make(map[string]string)
	for _, name := range []string{"mmdebstrap", "erofs-utils"} {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", name).Output()
		if err != nil {
			return nil, fmt.Errorf("ask dpkg for the version of %s: %w", name, err)
		}
		versions[name] = string(out)
	}
	return versions, nil
}
