// Package skills holds the built-in Agent Skills: folders with a SKILL.md that
// tell an agent how a kind of work is done well. Every sandbox has them under
// /skills. Start reading at CopyTo.
package skills

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed */SKILL.md
var builtin embed.FS

// Skill is one skill's head.
type Skill struct {
	// Name is also the folder's.
	Name string `yaml:"name"`
	// Description says when to use it.
	Description string `yaml:"description"`
}

// Bounds of the Agent Skills format.
const (
	maxName        = 64   // characters
	maxDescription = 1024 // characters
)

var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// List returns the built-in skills by name.
func List() ([]Skill, error) {
	entries, err := builtin.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list skills: %w", err)
	}
	var all []Skill
	for _, e := range entries {
		text, err := builtin.ReadFile(e.Name() + "/SKILL.md")
		if err != nil {
			return nil, fmt.Errorf("read skill %s: %w", e.Name(), err)
		}
		s, err := parse(e.Name(), string(text))
		if err != nil {
			return nil, fmt.Errorf("skill %s: %w", e.Name(), err)
		}
		all = append(all, s)
	}
	return all, nil
}

// parse reads the head of a SKILL.md and checks it.
func parse(folder, text string) (Skill, error) {
	var s Skill
	rest, ok := strings.CutPrefix(text, "---\n")
	head, body, closed := strings.Cut(rest, "\n---\n")
	if !ok || !closed {
		return s, errors.New("SKILL.md does not begin with a head between two lines of ---")
	}
	if err := yaml.UnmarshalWithOptions([]byte(head), &s, yaml.DisallowUnknownField()); err != nil {
		return s, fmt.Errorf("SKILL.md: %w", err)
	}
	switch {
	case !validName.MatchString(s.Name) || len(s.Name) > maxName:
		return s, fmt.Errorf("name %q is not 1 to %d of a-z 0-9 and single hyphens", s.Name, maxName)
	case s.Name != folder:
		return s, fmt.Errorf("name %q is not the folder's, %q", s.Name, folder)
	case s.Description == "" || len([]rune(s.Description)) > maxDescription:
		return s, fmt.Errorf("description has %d characters, it needs 1 to %d", len([]rune(s.Description)), maxDescription)
	case strings.TrimSpace(body) == "":
		return s, errors.New("SKILL.md says nothing after its head")
	}
	return s, nil
}

// CopyTo writes the built-in skills below dir, which must exist.
func CopyTo(dir string) error {
	if err := os.CopyFS(dir, builtin); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("copy skills: %w", err)
	}
	return nil
}
