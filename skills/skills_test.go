package skills

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestBuiltinSkillsAreValid(t *testing.T) {
	all, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if !s.Builtin || s.Files[0] != File {
			t.Errorf("%s: built in %v, files %q", s.Name, s.Builtin, s.Files)
		}
	}
	if got := strings.Join(names, " "); got != "photo-editing video-compositing" {
		t.Errorf("built-in skills: %s", got)
	}
}

const goodSkill = `---
name: grade
description: Colour grades footage. Use when someone asks for a look.
license: MIT
compatibility: Needs ffmpeg
metadata:
  author: studio
  version: "1.2"
allowed-tools: Bash Read
---
# Grade

See [the looks](references/looks.md) and run ` + "`scripts/grade.py`" + `.
`

// goodFolder is a valid skill with one of each.
func goodFolder() fstest.MapFS {
	return fstest.MapFS{
		"SKILL.md":            {Data: []byte(goodSkill)},
		"references/looks.md": {Data: []byte("# Looks\nBack to [the skill](../SKILL.md), see [a table](../assets/looks.csv).\n")},
		"assets/looks.csv":    {Data: []byte("warm,1.1\n")},
		"scripts/grade.py":    {Data: []byte("print('grade')\n")},
	}
}

func TestValidate(t *testing.T) {
	s, problems := Validate(goodFolder(), "grade")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if s.License != "MIT" || s.Compatibility != "Needs ffmpeg" || s.Metadata["version"] != "1.2" || !slices.Equal(s.AllowedTools, []string{"Bash", "Read"}) {
		t.Errorf("skill: %+v", s)
	}
	if !slices.Equal(s.Files, []string{"SKILL.md", "assets/looks.csv", "references/looks.md", "scripts/grade.py"}) || s.Size == 0 {
		t.Errorf("files %q, %d bytes", s.Files, s.Size)
	}
}

// TestValidateRefuses changes one thing of a good skill and expects one reason,
// at one place.
func TestValidateRefuses(t *testing.T) {
	replace := func(old, new string) func(fstest.MapFS) {
		return func(f fstest.MapFS) {
			text := strings.Replace(goodSkill, old, new, 1)
			if text == goodSkill {
				panic(old + " is not in the skill")
			}
			f["SKILL.md"] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	put := func(name, content string) func(fstest.MapFS) {
		return func(f fstest.MapFS) { f[name] = &fstest.MapFile{Data: []byte(content)} }
	}
	for name, tt := range map[string]struct {
		change func(fstest.MapFS)
		want   string
	}{
		"no SKILL.md":      {func(f fstest.MapFS) { delete(f, "SKILL.md"); delete(f, "references/looks.md") }, "SKILL.md: it is missing"},
		"no head":          {put("SKILL.md", "# Title\n"), "SKILL.md:1: it does not begin with a head"},
		"open head":        {put("SKILL.md", "---\nname: grade\n"), "SKILL.md:1: its head has no end"},
		"not YAML":         {replace("license: MIT", "license: [MIT"), "SKILL.md:5: its head is not YAML"},
		"not fields":       {put("SKILL.md", "---\n- a\n- b\n---\nbody\n"), "SKILL.md:2: its head is not a list of `field: value`"},
		"unknown field":    {replace("license: MIT", "licence: MIT"), `SKILL.md:4: there is no field "licence": the format has name, description, license`},
		"field twice":      {replace("license: MIT", "name: grade"), "SKILL.md:4:"},
		"bad name":         {replace("name: grade", "name: Grade_1"), `SKILL.md:2: name "Grade_1" may hold a-z, 0-9 and single hyphens`},
		"two hyphens":      {replace("name: grade", "name: grade--x"), "SKILL.md:2: name"},
		"other folder":     {replace("name: grade", "name: graded"), `SKILL.md:2: name "graded" is not the folder's, "grade"`},
		"long name":        {replace("name: grade", "name: "+strings.Repeat("a", 65)), "SKILL.md:2: name has 65 characters, it may have 64"},
		"no name":          {replace("name: grade\n", ""), "SKILL.md:1: its head lacks name"},
		"no description":   {replace("description: Colour grades footage. Use when someone asks for a look.\n", ""), "SKILL.md:1: its head lacks description"},
		"empty":            {replace("Colour grades footage. Use when someone asks for a look.", `""`), "SKILL.md:3: description is empty"},
		"long description": {replace("Colour", strings.Repeat("é", 1024)), "SKILL.md:3: description has 1074 characters, it may have 1024"},
		"description list": {replace("Colour grades footage. Use when someone asks for a look.", "[a, b]"), "SKILL.md:3: description is not text"},
		"long compat":      {replace("Needs ffmpeg", strings.Repeat("x", 501)), "SKILL.md:5: compatibility has 501 characters"},
		"metadata list":    {replace("  author: studio\n", "  author: [a]\n"), "SKILL.md:7: metadata author is not text"},
		"no body":          {put("SKILL.md", "---\nname: grade\ndescription: d\n---\n\n"), "SKILL.md:4: it says nothing after its head"},
		"too many lines":   {replace("# Grade", strings.Repeat("line\n", 500)), "SKILL.md: it has 513 lines, it may have 500"},
		"too long":         {replace("# Grade", strings.Repeat("x", 64<<10)), "SKILL.md: it has"},
		"missing file":     {replace("looks.md", "look.md"), `SKILL.md:13: "references/look.md" is not in the skill's folder`},
		"outside":          {replace("references/looks.md", "../../looks.md"), `SKILL.md:13: "../../looks.md" leads out`},
		"absolute":         {replace("references/looks.md", "/etc/passwd"), `SKILL.md:13: "/etc/passwd" is an absolute path`},
		"nested reference": {
			func(f fstest.MapFS) {
				f["references/looks.md"] = &fstest.MapFile{Data: []byte("\n[more](more.md)\n")}
				f["references/more.md"] = &fstest.MapFile{Data: []byte("more\n")}
			}, `references/looks.md:2: "more.md" is a reference within a reference`,
		},
		"not UTF-8":  {put("references/looks.md", "\xff\xfe"), "references/looks.md: it is not UTF-8 text"},
		"link":       {func(f fstest.MapFS) { f["x"] = &fstest.MapFile{Mode: fs.ModeSymlink | 0o777} }, "x: it is not a regular file"},
		"deep":       {put("a/b/c/d/e/f", "x"), "a/b/c/d/e: folders may lie 4 deep"},
		"odd name":   {put("a\x01b", "x"), "control character"},
		"large file": {func(f fstest.MapFS) { f["big"] = &fstest.MapFile{Data: make([]byte, maxFile+1)} }, "big: it has 16777217 bytes"},
		"many files": {
			func(f fstest.MapFS) {
				for i := range 501 {
					f[fmt.Sprintf("assets/%d", i)] = &fstest.MapFile{}
				}
			}, "it has 505 files, it may have 500",
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := goodFolder()
			tt.change(folder)
			_, problems := Validate(folder, "grade")
			if len(problems) != 1 || !strings.Contains(problems.Error(), tt.want) {
				t.Errorf("problems:\n%v\nwant one with %q", problems, tt.want)
			}
		})
	}
}

func TestValidateFindsAll(t *testing.T) {
	folder := fstest.MapFS{"SKILL.md": {Data: []byte("---\nname: X\ncolour: red\n---\n[a](b.md)\n")}}
	_, problems := Validate(folder, "grade")
	if len(problems) != 4 {
		t.Errorf("%d problems:\n%v", len(problems), problems)
	}
	folder["SKILL.md"].Data = []byte("---\nname: grade\ndescription: d\n---\n```\n[a](b.md)\n```\n[web](https://x.test/y) [top](#head)\n")
	if _, problems := Validate(folder, "grade"); len(problems) > 0 {
		t.Errorf("what is no reference was judged: %v", problems)
	}
}

// archive packs a folder.
func archive(t *testing.T, folder fs.FS) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if err := Pack(&b, folder); err != nil {
		t.Fatal(err)
	}
	return &b
}

func library(t *testing.T) (*Library, string) {
	t.Helper()
	dir := t.TempDir()
	l, err := OpenLibrary(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l, dir
}

func TestLibrary(t *testing.T) {
	l, dir := library(t)
	if _, err := l.Import("uid:1", "grade", archive(t, goodFolder())); err != nil {
		t.Fatal(err)
	}
	changed := goodFolder()
	delete(changed, "scripts/grade.py")
	changed["scripts/new.sh"] = &fstest.MapFile{Data: []byte("true\n")}
	if _, err := l.Import("uid:1", "grade", archive(t, changed)); err != nil {
		t.Fatal(err)
	}
	for account, want := range map[string]string{"uid:1": "grade photo-editing video-compositing", "uid:2": "photo-editing video-compositing", "..": "photo-editing video-compositing"} {
		all, err := l.List(account)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, want %s", account, got, want)
		}
	}
	out := t.TempDir()
	for range 2 { // a second copy changes nothing
		if err := l.Lay(out, "uid:1", []string{"grade", "photo-editing"}); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.Stat(filepath.Join(out, "grade", "scripts", "new.sh"))
	if err != nil || script.Mode().Perm() != 0o755 {
		t.Errorf("script: %v, %v", script, err)
	}
	if _, err := os.Stat(filepath.Join(out, "grade", "scripts", "grade.py")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the replaced skill is there: %v", err)
	}
	for _, unknown := range []string{"none", "../x", "", "."} {
		if _, _, err := l.Get("uid:1", unknown); !errors.Is(err, ErrUnknown) {
			t.Errorf("Get(%q): %v", unknown, err)
		}
	}
	if err := l.Lay(t.TempDir(), "uid:2", []string{"grade"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("another account copies the skill: %v", err)
	}
	if err := l.Remove("uid:2", "grade"); !errors.Is(err, ErrUnknown) {
		t.Errorf("another account removes the skill: %v", err)
	}
	if err := l.Remove("uid:1", "photo-editing"); err == nil {
		t.Error("a built-in skill was removed")
	}
	if err := l.Remove("uid:1", "grade"); err != nil {
		t.Error(err)
	}
	wantNoImports(t, dir)
}

// wantNoImports fails when half an import lies in the library.
func wantNoImports(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the library: %q, %v", left, err)
	}
}

// TestImportRefuses offers archives that are not skills. The skill that was
// there before stays as it was.
func TestImportRefuses(t *testing.T) {
	l, dir := library(t)
	if _, err := l.Import("a", "grade", archive(t, goodFolder())); err != nil {
		t.Fatal(err)
	}
	entries := func(headers ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		out := tar.NewWriter(&b)
		for _, h := range headers {
			content := []byte(goodSkill)
			if h.Typeflag != tar.TypeReg {
				content = nil
			}
			h.Size = int64(len(content))
			if err := out.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Write(content); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	bad := goodFolder()
	bad["SKILL.md"] = &fstest.MapFile{Data: []byte("---\nname: grade\n---\nx\n")}
	whole := archive(t, goodFolder()).Bytes()
	for name, tt := range map[string]struct {
		skill   string
		archive *bytes.Buffer
		want    string
	}{
		"invalid":     {"grade", archive(t, bad), "SKILL.md:1: its head lacks description"},
		"other name":  {"grades", archive(t, goodFolder()), `is not the folder's, "grades"`},
		"bad name":    {"../grade", archive(t, goodFolder()), "may hold a-z"},
		"built in":    {"photo-editing", archive(t, goodFolder()), "built-in skill"},
		"no tar":      {"grade", bytes.NewBufferString("PK\x03\x04 and so on, not a tar archive"), "not a tar"},
		"cut off":     {"grade", bytes.NewBuffer(whole[:700]), "archive ends within it"},
		"empty":       {"grade", bytes.NewBuffer(nil), "it is missing"},
		"traversal":   {"grade", entries(tar.Header{Name: "../SKILL.md", Typeflag: tar.TypeReg}), "leads out"},
		"absolute":    {"grade", entries(tar.Header{Name: "/etc/x", Typeflag: tar.TypeReg}), "leads out"},
		"link":        {"grade", entries(tar.Header{Name: "x", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink}), "not a regular file"},
		"hard link":   {"grade", entries(tar.Header{Name: "x", Linkname: "SKILL.md", Typeflag: tar.TypeLink}), "not a regular file"},
		"device":      {"grade", entries(tar.Header{Name: "x", Typeflag: tar.TypeChar}), "not a regular file"},
		"twice":       {"grade", entries(tar.Header{Name: "SKILL.md", Typeflag: tar.TypeReg}, tar.Header{Name: "SKILL.md", Typeflag: tar.TypeReg}), "twice"},
		"in its way":  {"grade", entries(tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "a/b", Typeflag: tar.TypeReg}), "in its way"},
		"too deep":    {"grade", entries(tar.Header{Name: "a/b/c/d/e/f", Typeflag: tar.TypeReg}), "4 deep"},
		"many files":  {"grade", entries(manyHeaders(501)...), "more than 500 files"},
		"claims much": {"grade", claims(maxFile + 1), "a file may have"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Import("a", tt.skill, tt.archive)
			var problems Problems
			if !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want problems with %q", err, tt.want)
			}
			if s, _, err := l.Get("a", "grade"); err != nil || len(s.Files) != 4 {
				t.Errorf("the skill that was there: %+v, %v", s, err)
			}
			wantNoImports(t, dir)
		})
	}
}

func manyHeaders(n int) []tar.Header {
	headers := make([]tar.Header, n)
	for i := range headers {
		headers[i] = tar.Header{Name: fmt.Sprintf("assets/%d", i), Typeflag: tar.TypeReg}
	}
	return headers
}

// claims is an archive whose one file says it has size bytes, and has none.
func claims(size int64) *bytes.Buffer {
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: size}); err != nil {
		panic(err)
	}
	return &b
}

func TestOpenLibrarySweeps(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "account-a", importPrefix+"1", "scripts")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLibrary(dir); err != nil {
		t.Fatal(err)
	}
	wantNoImports(t, dir)
}

func TestLay(t *testing.T) {
	l, _ := library(t)
	if _, err := l.Import("a", "grade", archive(t, goodFolder())); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{nil, "photo-editing video-compositing"},
		{[]string{"grade", "photo-editing"}, "grade photo-editing"},
		{[]string{}, ""},
		{nil, "photo-editing video-compositing"},
	} {
		if err := l.Lay(dir, "a", tt.names); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("Lay(%q) leaves %q, want %q", tt.names, got, tt.want)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(goodSkill))
	f.Add([]byte("---\n: :\n---\n"))
	f.Add([]byte("---\nname: &a [*a]\ndescription: *b\n---\nx"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, problems := Validate(fstest.MapFS{File: {Data: text}}, "grade")
		if len(problems) == 0 && (s.Name != "grade" || strings.TrimSpace(s.Description) == "") {
			t.Errorf("valid, but %+v", s)
		}
	})
}
