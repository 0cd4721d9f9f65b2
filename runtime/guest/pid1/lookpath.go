package pid1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// lookPath finds the program of argv in the PATH of env, which is the
// command's and not this process's.
func lookPath(argv, env []string, dir string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("the command is empty")
	}
	name := argv[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if err := executable(path); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		return path, nil
	}
	for _, d := range filepath.SplitList(pathOf(env)) {
		path := filepath.Join(d, name)
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

func pathOf(env []string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			return v
		}
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

var errIsDir = errors.New("is a directory")

// refusal is the exit code with which a shell says that it can't run a program:
// 126 when it is there, 127 when it is not.
func refusal(err error) int {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errIsDir) {
		return 126
	}
	return 127
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return errors.Unwrap(err)
	case st.IsDir():
		return errIsDir
	case st.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

// executableDir tells whether a command can start in dir.
func executableDir(dir string) error {
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = errors.New("is not a directory")
	}
	return err
}
