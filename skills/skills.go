// Package skills knows Agent Skills: folders with a SKILL.md that tell an agent
// how a kind of work is done well, with references, assets and scripts beside
// it. Builtin holds the skills that come with the product; Validate judges a
// folder against the format's specification and says what is wrong and where;
// Library keeps the skills that accounts brought, and lays skills out where a
// sandbox sees them read-only under /skills.
//
// Nothing here runs a skill's scripts: that happens in sandboxes only. Start
// reading at Validate.
package skills

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

//go:embed all:photo-editing all:video-compositing
var embedded embed.FS

// File is what makes a folder a skill.
const File = "SKILL.md"

// Skill is one skill's head, the frontmatter of its SKILL.md.
type Skill struct {
	// Name is also the folder's.
	Name string
	// Description says what the skill does and when to use it.
	Description string
	// License and Compatibility are free text, and may be empty.
	License, Compatibility string
	// Metadata is the author's.
	Metadata map[string]string
	// AllowedTools names tools that the skill may use without asking.
	AllowedTools []string
	// Builtin is true for the skills that come with the product.
	Builtin bool
	// Files are the paths of the folder, SKILL.md first.
	Files []string
	// Size is that of all files, in bytes.
	Size int64
}

// ErrUnknown says that there is no skill of a name.
var ErrUnknown = errors.New("there is no such skill")

// Builtin returns the skills that come with the product, by name.
func Builtin() ([]Skill, error) {
	all, err := builtin()
	return slices.Clone(all), err
}

var builtin = sync.OnceValues(func() ([]Skill, error) {
	entries, err := embedded.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list built-in skills: %w", err)
	}
	var all []Skill
	for _, e := range entries {
		s, problems := Validate(sub(e.Name()), e.Name())
		if len(problems) > 0 {
			return nil, fmt.Errorf("built-in skill %s: %w", e.Name(), problems)
		}
		s.Builtin = true
		all = append(all, s)
	}
	return all, nil
})

// sub is a built-in skill's folder.
func sub(name string) fs.FS {
	folder, err := fs.Sub(embedded, name)
	if err != nil {
		// Only an invalid path is refused, and names are valid.
		panic(err)
	}
	return folder
}

// IsBuiltin says whether a skill of that name comes with the product.
func IsBuiltin(name string) bool {
	info, err := fs.Stat(embedded, name)
	return err == nil && info.IsDir()
}

// copyFolder makes dir/name a copy of a skill's folder, at once: it is made
// beside the place and renamed into it. A folder that is there already stays.
func copyFolder(folder fs.FS, dir, name string) error {
	target := filepath.Join(dir, name)
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	making, err := os.MkdirTemp(dir, ".skill-")
	if err != nil {
		return fmt.Errorf("copy skill %s: %w", name, err)
	}
	defer os.RemoveAll(making)
	if err := os.CopyFS(making, folder); err != nil {
		return fmt.Errorf("copy skill %s: %w", name, err)
	}
	if err := openToAll(making); err != nil {
		return fmt.Errorf("copy skill %s: %w", name, err)
	}
	if err := os.Rename(making, target); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("copy skill %s: %w", name, err)
	}
	return nil
}

// openToAll lets every user of a sandbox read a folder and run its scripts.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() || strings.HasPrefix(strings.TrimPrefix(path, dir), "/scripts/") {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
}

// byName sorts skills.
func byName(all []Skill) []Skill {
	slices.SortFunc(all, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	return all
}
