package rootfs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// hostRoot makes a directory with the apt sources of a host.
func hostRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	debian12 = "ID=debian\nVERSION_CODENAME=bookworm\n"
	debian13 = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION_CODENAME=trixie\n"
)

func TestHostMirrors(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  mirrors
	}{
		{"Debian 12, one line each", map[string]string{
			"etc/os-release": debian12,
			"etc/apt/sources.list": `# the archive
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] http://archive.test/debian/ bookworm main contrib # comment
deb-src http://sources.test/debian bookworm main
deb http://archive.test/debian bookworm-updates main
deb http://security.test/debian-security bookworm-security main
`,
		}, mirrors{"http://archive.test/debian", "http://security.test/debian-security"}},
		{"Debian 13, deb822", map[string]string{
			"etc/os-release": debian13,
			"etc/apt/sources.list.d/debian.sources": `Types: deb deb-src
# a comment
URIs: https://archive.test/debian
Suites: trixie
 trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp

Types: deb
URIs: https://security.test/debian-security
Suites: trixie-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp
`,
		}, mirrors{"https://archive.test/debian", "https://security.test/debian-security"}},
		{"other people's archives and disabled ones", map[string]string{
			"etc/os-release": debian12,
			"etc/apt/sources.list.d/a.list": `deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.test bookworm main
deb https://vendor.test stable main
`,
			"etc/apt/sources.list.d/b.sources": `Types: deb
URIs: https://off.test
Suites: bookworm
Components: main
Enabled: no
`,
		}, mirrors{}},
		{"a mirror list", map[string]string{
			"etc/os-release":       debian12,
			"etc/apt/sources.list": "deb mirror+file:///etc/apt/mirrors/debian.list bookworm main\n",
		}, mirrors{}},
		{"a password", map[string]string{
			"etc/os-release":       debian12,
			"etc/apt/sources.list": "deb https://me:secret@archive.test/debian bookworm main\n",
		}, mirrors{}},
		{"not Debian", map[string]string{
			"etc/os-release":       "ID=ubuntu\nVERSION_CODENAME=noble\n",
			"etc/apt/sources.list": "deb http://archive.test/ubuntu noble main\n",
		}, mirrors{}},
		{"no apt at all", nil, mirrors{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := hostMirrors(hostRoot(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("mirrors are %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestMirrorLines(t *testing.T) {
	recipe := mustParse(t, tinyRecipe)
	got := mirrors{"http://a.test/debian", "http://s.test/sec"}.lines(recipe)
	want := []string{
		"deb http://a.test/debian trixie main",
		"deb http://a.test/debian trixie-updates main",
		"deb http://s.test/sec trixie-security main",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
	if lines := (mirrors{}).lines(recipe); lines != nil {
		t.Errorf("lines without a mirror are %q; mmdebstrap is to choose", lines)
	}
}

func TestCheckMirror(t *testing.T) {
	for mirror, want := range map[string]string{
		"http://archive.test/debian":     "",
		"https://archive.test":           "",
		"archive.test/debian":            "not an http or https address",
		"ftp://archive.test/debian":      "not an http or https address",
		"http://a.test/ trixie evil":     "not an http or https address",
		"https://me:secret@archive.test": "would end up in the image",
	} {
		err := checkMirror(mirror)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("checkMirror(%q): %v; want %q", mirror, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

func TestDeb822RoundTrip(t *testing.T) {
	sources := []source{
		{"http://a.test/debian", "trixie", []string{"main", "contrib"}, keyring},
		{"http://s.test/sec", "trixie-security", []string{"main"}, keyring},
	}
	if got := parseDeb822(deb822(sources)); !reflect.DeepEqual(got, sources) {
		t.Errorf("sources are %+v, want %+v", got, sources)
	}
}
