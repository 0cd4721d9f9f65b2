package skills

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the Agent Skills format, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// Bounds of ours: what a sandbox gets a copy of, and an agent reads, has to
// stay small.
const (
	maxSkillFile = 64 << 10 // bytes of SKILL.md
	maxLines     = 500      // lines of SKILL.md, the format's advice
	maxFile      = 16 << 20 // bytes of any file
	maxTotal     = 64 << 20 // bytes of a skill
	maxFiles     = 500
	maxDepth     = 4 // folders below the skill's own
	maxPath      = 200
)

// Problem is one reason why a folder is not a valid skill.
type Problem struct {
	// File is relative to the skill's folder.
	File string `json:"file"`
	// Line counts from 1; 0 means the whole file.
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
}

func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Reason)
	}
	return p.File + ": " + p.Reason
}

// Problems is all that is wrong with a skill, as one error.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

var validName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// checkName returns what is wrong with a skill's name, or nothing.
func checkName(name string) string {
	switch {
	case name == "":
		return "name is empty"
	case len(name) > maxName:
		return fmt.Sprintf("name has %d characters, it may have %d", len(name), maxName)
	case !validName.MatchString(name):
		return fmt.Sprintf("name %q may hold a-z, 0-9 and single hyphens between them", name)
	}
	return ""
}

// Validate judges the skill in folder, whose name is the last element of its
// path, against the Agent Skills specification and this product's bounds. It
// finds all problems, not only the first. The skill is of use only when there
// are none.
func Validate(folder fs.FS, name string) (Skill, Problems) {
	v := &validation{folder: folder, folderName: name}
	v.walk()
	if !slices.Contains(v.skill.Files, File) {
		v.add(File, 0, "it is missing: a skill is a folder with a "+File)
		return v.skill, v.problems
	}
	if text, ok := v.read(File, maxSkillFile); ok {
		v.skillFile(text)
	}
	for _, file := range v.skill.Files {
		if file != File && path.Ext(file) == ".md" {
			if text, ok := v.read(file, maxFile); ok {
				v.links(file, text, 0)
			}
		}
	}
	return v.skill, v.problems
}

// validation is one call of Validate.
type validation struct {
	folder     fs.FS
	folderName string
	skill      Skill
	problems   Problems
}

func (v *validation) add(file string, line int, format string, args ...any) {
	v.problems = append(v.problems, Problem{File: file, Line: line, Reason: fmt.Sprintf(format, args...)})
}

// walk lists the folder's files and checks their kinds, names and sizes.
func (v *validation) walk() {
	err := fs.WalkDir(v.folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "." {
			return nil
		}
		if reason := badPath(name); reason != "" {
			v.add(name, 0, "%s", reason)
		}
		if d.IsDir() {
			if strings.Count(name, "/") >= maxDepth {
				v.add(name, 0, "folders may lie %d deep", maxDepth)
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			v.add(name, 0, "it is not a regular file: links and devices are not taken")
			return nil
		}
		return v.file(name, d)
	})
	if err != nil {
		v.add(".", 0, "read the folder: %v", err)
	}
	if n := len(v.skill.Files); n > maxFiles {
		v.add(".", 0, "it has %d files, it may have %d", n, maxFiles)
	}
	if v.skill.Size > maxTotal {
		v.add(".", 0, "it has %d bytes, it may have %d", v.skill.Size, maxTotal)
	}
	// SKILL.md comes first in the list.
	if i := slices.Index(v.skill.Files, File); i > 0 {
		v.skill.Files = slices.Insert(slices.Delete(v.skill.Files, i, i+1), 0, File)
	}
}

func (v *validation) file(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	v.skill.Files = append(v.skill.Files, name)
	v.skill.Size += info.Size()
	if info.Size() > maxFile {
		v.add(name, 0, "it has %d bytes, a file may have %d", info.Size(), maxFile)
	}
	return nil
}

// badPath returns what is wrong with a path within a skill, or nothing.
func badPath(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "its name is not UTF-8"
	case len(name) > maxPath:
		return fmt.Sprintf("its path has %d bytes, it may have %d", len(name), maxPath)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return "its name holds a control character or a backslash"
	}
	return ""
}

// read returns a text file of bounded size.
func (v *validation) read(name string, limit int) (string, bool) {
	data, err := fs.ReadFile(v.folder, name)
	switch {
	case err != nil:
		v.add(name, 0, "read it: %v", err)
	case len(data) > limit:
		v.add(name, 0, "it has %d bytes, it may have %d: move detail into references/", len(data), limit)
	case !utf8.Valid(data):
		v.add(name, 0, "it is not UTF-8 text")
	default:
		return strings.ReplaceAll(string(data), "\r\n", "\n"), true
	}
	return "", false
}

// skillFile checks SKILL.md: its head, then its body.
func (v *validation) skillFile(text string) {
	rest, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		v.add(File, 1, "it does not begin with a head between two lines of ---")
		return
	}
	head, body, closed := strings.Cut("\n"+rest, "\n---\n")
	if !closed {
		if head, closed = strings.CutSuffix("\n"+rest, "\n---"); !closed {
			v.add(File, 1, "its head has no end: a line of --- is missing")
			return
		}
		body = ""
	}
	v.head(strings.TrimPrefix(head, "\n"))
	bodyLine := 2 + strings.Count(head, "\n")
	if strings.TrimSpace(body) == "" {
		v.add(File, bodyLine, "it says nothing after its head")
	}
	if lines := bodyLine + strings.Count(body, "\n"); lines > maxLines {
		v.add(File, 0, "it has %d lines, it may have %d: move detail into references/", lines, maxLines)
	}
	v.links(File, body, bodyLine)
}

var link = regexp.MustCompile(`\]\(([^)\s]+)[^)]*\)`)

// links checks the local files that a text refers to: they exist, they are in
// the folder, and what SKILL.md refers to does not refer to further text.
// offset is the number of lines before the text.
func (v *validation) links(file, text string, offset int) {
	fenced := false
	line := offset
	for content := range strings.Lines(text) {
		line++
		if strings.HasPrefix(strings.TrimSpace(content), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			v.link(file, line, m[1])
		}
	}
}

func (v *validation) link(file string, line int, target string) {
	target, _, _ = strings.Cut(target, "#")
	if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return
	}
	if path.IsAbs(target) {
		v.add(file, line, "%q is an absolute path: refer to files of the skill by their path within it", target)
		return
	}
	// The format has paths relative to the skill's folder; those relative to
	// the file are read too.
	fromRoot, fromFile := path.Clean(target), path.Join(path.Dir(file), target)
	for _, candidate := range []string{fromRoot, fromFile} {
		if !fs.ValidPath(candidate) {
			continue
		}
		if _, err := fs.Stat(v.folder, candidate); err == nil {
			if file != File && candidate != File && path.Ext(candidate) == ".md" {
				v.add(file, line, "%q is a reference within a reference: refer to it from %s", target, File)
			}
			return
		}
	}
	if !fs.ValidPath(fromRoot) && !fs.ValidPath(fromFile) {
		v.add(file, line, "%q leads out of the skill's folder", target)
		return
	}
	v.add(file, line, "%q is not in the skill's folder", target)
}
