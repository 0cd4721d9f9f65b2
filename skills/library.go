package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxPerAccount bounds the skills an account may bring.
const maxPerAccount = 100

// importPrefix marks folders of imports that are under way.
const importPrefix = ".import-"

// Library keeps the skills that accounts brought, below one directory:
// <account>/<skill>/SKILL.md. A skill is there whole or not at all.
type Library struct {
	dir string
	// mu makes imports and removals of skills take turns.
	mu sync.Mutex
}

// OpenLibrary opens the library in dir, and makes it when it is not there. What
// imports that were cut off left behind goes.
func OpenLibrary(dir string) (*Library, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the skill library: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", importPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("open the skill library: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return nil, fmt.Errorf("remove the left-over of an import: %w", err)
		}
	}
	return &Library{dir: dir}, nil
}

// accountDir is where an account's skills lie. The prefix keeps an account
// named . or .. in the library.
func (l *Library) accountDir(account string) string {
	return filepath.Join(l.dir, "account-"+url.PathEscape(account))
}

// List returns the built-in skills and the account's own, by name.
func (l *Library) List(account string) ([]Skill, error) {
	all, err := Builtin()
	if err != nil {
		return nil, err
	}
	names, err := l.names(account)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		s, problems := Validate(os.DirFS(filepath.Join(l.accountDir(account), name)), name)
		if len(problems) > 0 {
			return nil, fmt.Errorf("skill %s in the library: %w", name, problems)
		}
		all = append(all, s)
	}
	return byName(all), nil
}

// names lists the account's own skills.
func (l *Library) names(account string) ([]string, error) {
	entries, err := os.ReadDir(l.accountDir(account))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list skills: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Get returns a skill of the account, or a built-in one, with its folder. The
// error wraps ErrUnknown when there is none.
func (l *Library) Get(account, name string) (Skill, fs.FS, error) {
	if checkName(name) != "" {
		return Skill{}, nil, fmt.Errorf("skill %q: %w", name, ErrUnknown)
	}
	folder := os.DirFS(filepath.Join(l.accountDir(account), name))
	if IsBuiltin(name) {
		folder = sub(name)
	} else if _, err := fs.Stat(folder, "."); err != nil {
		return Skill{}, nil, fmt.Errorf("skill %q: %w", name, ErrUnknown)
	}
	s, problems := Validate(folder, name)
	if len(problems) > 0 {
		return Skill{}, nil, fmt.Errorf("skill %s in the library: %w", name, problems)
	}
	s.Builtin = IsBuiltin(name)
	return s, folder, nil
}

// Import takes a skill from an archive as Pack writes it, and replaces the
// account's skill of that name. A skill that is not valid is refused with
// Problems, and nothing of it stays.
func (l *Library) Import(account, name string, archive io.Reader) (Skill, error) {
	if reason := checkName(name); reason != "" {
		return Skill{}, Problems{{File: ".", Reason: reason}}
	}
	if IsBuiltin(name) {
		return Skill{}, Problems{{File: ".", Reason: fmt.Sprintf("%s is the name of a built-in skill: choose another", name)}}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	names, err := l.names(account)
	if err != nil {
		return Skill{}, err
	}
	dir := l.accountDir(account)
	if len(names) >= maxPerAccount {
		return Skill{}, Problems{{File: ".", Reason: fmt.Sprintf("the account has %d skills, it may have %d: remove one", len(names), maxPerAccount)}}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Skill{}, fmt.Errorf("import skill %s: %w", name, err)
	}
	making, err := os.MkdirTemp(dir, importPrefix)
	if err != nil {
		return Skill{}, fmt.Errorf("import skill %s: %w", name, err)
	}
	defer os.RemoveAll(making)
	s, err := unpackAndValidate(making, name, archive)
	if err != nil {
		return Skill{}, err
	}
	if err := replace(making, filepath.Join(dir, name)); err != nil {
		return Skill{}, fmt.Errorf("import skill %s: %w", name, err)
	}
	return s, nil
}

// Check judges a skill in an archive without keeping it.
func (l *Library) Check(name string, archive io.Reader) (Skill, error) {
	dir, err := os.MkdirTemp("", "skill-")
	if err != nil {
		return Skill{}, fmt.Errorf("check skill %s: %w", name, err)
	}
	defer os.RemoveAll(dir)
	return unpackAndValidate(dir, name, archive)
}

func unpackAndValidate(dir, name string, archive io.Reader) (Skill, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Skill{}, fmt.Errorf("unpack skill %s: %w", name, err)
	}
	defer root.Close()
	if err := unpack(root, archive); err != nil {
		return Skill{}, err
	}
	s, problems := Validate(root.FS(), name)
	if len(problems) > 0 {
		return Skill{}, problems
	}
	return s, nil
}

// replace puts a folder in the place of another, or of nothing, at once.
func replace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		// What was there takes the temporary name, and goes with it.
		err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	}
	return err
}

// Remove removes one of the account's own skills.
func (l *Library) Remove(account, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, _, err := l.Get(account, name)
	if err != nil {
		return err
	}
	if s.Builtin {
		return Problems{{File: ".", Reason: name + " is built in and stays"}}
	}
	if err := os.RemoveAll(filepath.Join(l.accountDir(account), name)); err != nil {
		return fmt.Errorf("remove skill %s: %w", name, err)
	}
	return nil
}

// Lay makes dir, which must exist, hold just these skills of the account, each
// whole or not at all; nil names mean all built-in ones. A skill that is there
// already is left as it is.
func (l *Library) Lay(dir, account string, names []string) error {
	if names == nil {
		all, err := Builtin()
		if err != nil {
			return err
		}
		for _, s := range all {
			names = append(names, s.Name)
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("lay out skills: %w", err)
	}
	for _, e := range there {
		if slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("lay out skills: %w", err)
		}
	}
	for _, name := range names {
		_, folder, err := l.Get(account, name)
		if err != nil {
			return fmt.Errorf("lay out skills: %w", err)
		}
		if err := copyFolder(folder, dir, name); err != nil {
			return err
		}
	}
	return nil
}
