package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// overlayFile writes an overlay recipe and a file beside it.
func overlayFile(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"overlay.toml": text, "greeting.txt": "hello\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "overlay.toml")
}

func TestOverlay(t *testing.T) {
	base := mustParse(t, tinyRecipe)
	digest := base.Digest()
	whole, err := base.With(overlayFile(t, `
packages = ["zip", "file"]
exclude = ["/usr/share/bug/*"]
[environment]
STUDIO = "darkroom"
[tools]
file = "file --version"
[[file]]
path = "/etc/motd"
content = "ours\n"
[[file]]
path = "/etc/greeting"
source = "greeting.txt"
[[prepare]]
name = "first"
run = "true"
[[check]]
name = "last"
run = "true"
`))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(whole.Packages, []string{"file", "less", "zip"}) {
		t.Errorf("packages: %q", whole.Packages)
	}
	files := make(map[string]string)
	for _, f := range whole.Files {
		files[f.Path] += f.Content
	}
	if files["/etc/motd"] != "ours\n" || files["/etc/greeting"] != "hello\n" || files["/etc/hostname"] != "sandbox\n" {
		t.Errorf("files: %q", files)
	}
	if whole.Environment["STUDIO"] != "darkroom" || whole.Environment["PATH"] == "" || whole.Tools["zip"] == "" || whole.Tools["file"] == "" {
		t.Errorf("environment %q, tools %q", whole.Environment, whole.Tools)
	}
	// What an overlay prepares comes before the base compiles and caches.
	if whole.Prepare[0].Name != "first" || whole.Checks[len(whole.Checks)-1].Name != "last" {
		t.Errorf("prepare %v, checks %v", whole.Prepare, whole.Checks)
	}
	if whole.Digest() == digest || base.Digest() != digest {
		t.Error("the overlay is not in the digest, or it changed its base")
	}
	again, err := base.With(overlayFile(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != digest {
		t.Error("an empty overlay changes the digest")
	}
}

func TestOverlayRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"suite":          {`suite = "forky"`, "suite is the whole image's"},
		"mtime":          {`mtime = 5`, "mtime is the whole image's"},
		"fetch":          {"[fetch]\nname = \"x\"", "fetch is the whole image's"},
		"epoch":          {"[environment]\nSOURCE_DATE_EPOCH = \"5\"", "SOURCE_DATE_EPOCH"},
		"unknown key":    {"\npackage = [\"zip\"]", `overlay.toml:2: unknown key "package"`},
		"option":         {`packages = ["--force"]`, "not a plain word"},
		"relative path":  {"[[file]]\npath = \"etc/x\"\ncontent = \"x\"", "not absolute"},
		"missing source": {"[[file]]\npath = \"/etc/x\"\nsource = \"none.txt\"", "none.txt"},
		"outside":        {"[[file]]\npath = \"/etc/x\"\nsource = \"../../etc/passwd\"", "file /etc/x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mustParse(t, tinyRecipe).With(overlayFile(t, tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "overlay.toml") {
				t.Errorf("error %v; want the file's name and %q", err, tt.want)
			}
		})
	}
	if _, err := mustParse(t, tinyRecipe).With(filepath.Join(t.TempDir(), "none.toml")); err == nil {
		t.Error("an overlay that is not there was read")
	}
}
