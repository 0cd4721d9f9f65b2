package skills

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuiltinSkillsAreValid(t *testing.T) {
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "photo-editing video-compositing" {
		t.Errorf("built-in skills: %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no head":        {"# Title\n", "does not begin with a head"},
		"open head":      {"---\nname: x\n", "does not begin with a head"},
		"unknown field":  {"---\nname: x\ndescription: d\ncolour: red\n---\nbody\n", "unknown field \"colour\""},
		"other folder":   {"---\nname: y\ndescription: d\n---\nbody\n", "not the folder's"},
		"bad name":       {"---\nname: X_y\ndescription: d\n---\nbody\n", "single hyphens"},
		"no description": {"---\nname: x\n---\nbody\n", "0 characters"},
		"no body":        {"---\nname: x\ndescription: d\n---\n\n", "says nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse("x", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestCopyTo(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // a second copy changes nothing
		if err := CopyTo(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "photo-editing", "SKILL.md")); err != nil {
		t.Error(err)
	}
}
