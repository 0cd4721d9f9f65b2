package rootfs

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// beside is what lies beside the tiny recipe.
var beside = fstest.MapFS{
	"motd.txt":               {Data: []byte("welcome\n")},
	"lib/a.py":               {Data: []byte("a = 1\n")},
	"lib/deep/b.py":          {Data: []byte("b = 2\n")},
	"lib/tests/test_a.py":    {Data: []byte("no part of the image")},
	"lib/__pycache__/a.pyc":  {Data: []byte("no part of the image")},
	"fetch/fetched-lock.txt": {Data: []byte("pinned\n")},
}

// tinyRecipe is a whole recipe of few packages. Its preparation leaves behind
// what a build has to remove.
const tinyRecipe = `
suite = "trixie"
variant = "essential"
components = ["main"]
mtime = 1767225600
packages = ["less", "zip"]
exclude = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]
remove = ["/usr/share/info"]

[environment]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SOURCE_DATE_EPOCH = "1767225600"

[tools]
zip = "zip -v | sed -n 's/^This is Zip \\([0-9.]*\\).*/\\1/p'"

[[directory]]
path = "/workspace"
[[directory]]
path = "/var/cache/shared"
mode = 0o1777

[[file]]
path = "/etc/hostname"
content = "sandbox\n"
[[file]]
path = "/etc/motd"
source = "motd.txt"
[[folder]]
path = "/usr/lib/tiny"
source = "lib"
[[file]]
path = "/usr/lib/fetched/lock.txt"
source = "fetch/fetched-lock.txt"

[fetch]
name = "a file from elsewhere"
packages = ["base-files", "dash", "coreutils"]
output = "/usr/lib/fetched"
run = "cp lock.txt copy.txt; echo lost >/etc/lost"

[[prepare]]
name = "leave traces"
run = "date +%N >/var/log/trace; date +%N >/tmp/trace; echo kept >/etc/prepared"

[[check]]
name = "the tree is as a sandbox sees it"
run = '''
test "$(cat /etc/prepared)" = kept
test ! -e /usr/share/info
test "$(cat /usr/lib/fetched/copy.txt)" = pinned
test ! -e /etc/lost
test "$(cat /usr/lib/tiny/deep/b.py)" = 'b = 2'
touch /workspace/writable /var/cache/shared/writable
if touch /etc/writable 2>/dev/null; then exit 1; fi
test "$(ls /proc | grep -c '^[0-9]')" -lt 10
'''
`

func mustParse(t *testing.T, text string) *Recipe {
	t.Helper()
	recipe, err := ParseRecipe("tiny.toml", []byte(text), beside)
	if err != nil {
		t.Fatal(err)
	}
	return recipe
}

func TestDefaultRecipe(t *testing.T) {
	recipe, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, d := range recipe.Directories {
		paths = append(paths, d.Path)
	}
	for _, want := range []string{"/workspace", "/inputs", "/outputs", "/skills", "/.ctl", "/.init"} {
		if !slices.Contains(paths, want) {
			t.Errorf("the recipe lacks the directory %s", want)
		}
	}
	environment := recipe.Environ()
	if !slices.IsSorted(environment) {
		t.Errorf("environment is not sorted: %q", environment)
	}
	for _, want := range []string{"HOME=/workspace", "LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0", "MPLBACKEND=Agg"} {
		if !slices.Contains(environment, want) {
			t.Errorf("environment lacks %s", want)
		}
	}
}

func TestParseRecipeRefuses(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"unknown key", `variant = "essential"`, "variant = \"essential\"\nvarient = 1", `tiny.toml:4: unknown key "varient"`},
		{"unknown key in a table", "[[directory]]\npath = \"/workspace\"", "[[directory]]\npath = \"/workspace\"\nowner = \"me\"", `unknown key "directory.owner"`},
		{"wrong type", "mtime = 1767225600", `mtime = "now"`, "tiny.toml:5:"},
		{"not TOML", `suite = "trixie"`, `suite = trixie`, "tiny.toml:2:"},
		{"suite that is an option", `"trixie"`, `"--help"`, "not a plain word"},
		{"package that is an option", `"less"`, `"-oDebug"`, "not a plain word"},
		{"package list in a package", `"less"`, `"less,zip"`, "not a plain word"},
		{"no mtime", "mtime = 1767225600", "mtime = 0", "mtime is missing"},
		{"two times", `SOURCE_DATE_EPOCH = "1767225600"`, `SOURCE_DATE_EPOCH = "1"`, "it must be mtime"},
		{"relative path", `path = "/workspace"`, `path = "workspace"`, "not absolute and clean"},
		{"path out of the tree", `path = "/workspace"`, `path = "/../etc"`, "not absolute and clean"},
		{"the root", `remove = ["/usr/share/info"]`, `remove = ["/"]`, "not absolute and clean"},
		{"nameless step", `name = "leave traces"`, `name = ""`, "needs a name and a script"},
		{"source that is not there", `"motd.txt"`, `"motd.md"`, "file /etc/motd"},
		{"source beside a content", `source = "motd.txt"`, "source = \"motd.txt\"\ncontent = \"x\"", "both a content and a source"},
		{"source out of the folder", `"motd.txt"`, `"../motd.txt"`, "file /etc/motd"},
		{"fetching without a script", `run = "cp lock.txt`, `run = "" #`, "needs a name and a script"},
		{"fetching an option", `"base-files"`, `"-oDebug"`, "not a plain word"},
		{"variable with =", "[tools]", "\"A=B\" = \"c\"\n[tools]", "malformed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(tinyRecipe, test.old, test.new, 1)
			if text == tinyRecipe {
				t.Fatalf("%q is not in the recipe", test.old)
			}
			_, err := ParseRecipe("tiny.toml", []byte(text), beside)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "tiny.toml") {
				t.Errorf("error is %v; want the file's name and %q", err, test.want)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	base := mustParse(t, tinyRecipe).Digest()
	if !digestForm.MatchString(base) {
		t.Fatalf("digest %q is not 64 hexadecimal digits", base)
	}
	for _, test := range []struct {
		name, old, new string
		same           bool
	}{
		{"comment", `variant =`, "# a comment\nvariant =", true},
		{"order of packages", `["less", "zip"]`, `["zip", "less"]`, true},
		{"the default mode spelled out", "path = \"/workspace\"", "path = \"/workspace\"\nmode = 0o755", true},
		{"space for the build", "mtime =", "build_space_mb = 5\nmtime =", true},
		{"package", `["less", "zip"]`, `["less", "zip", "file"]`, false},
		{"file content", `"sandbox\n"`, `"box\n"`, false},
		{"mode", "0o1777", "0o777", false},
		{"script", "echo kept", "echo Kept", false},
		{"environment", `[environment]`, "[environment]\nTZ = \"UTC\"", false},
		{"exclusion", `"/usr/share/doc/*", `, "", false},
		{"what is fetched", "cp lock.txt copy.txt", "cp lock.txt other.txt", false},
		{"what only the build checks", "name = \"the tree is", "build_only = true\nname = \"the tree is", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(tinyRecipe, test.old, test.new, 1)
			if text == tinyRecipe {
				t.Fatalf("%q is not in the recipe", test.old)
			}
			if same := mustParse(t, text).Digest() == base; same != test.same {
				t.Errorf("digest unchanged: %v, want %v", same, test.same)
			}
		})
	}
}

func TestSourcesAreContent(t *testing.T) {
	recipe := mustParse(t, tinyRecipe)
	got := make(map[string]string)
	for _, f := range recipe.Files {
		got[f.Path] = f.Content
	}
	for path, want := range map[string]string{
		"/etc/motd": "welcome\n", "/usr/lib/tiny/a.py": "a = 1\n", "/usr/lib/tiny/deep/b.py": "b = 2\n",
	} {
		if got[path] != want {
			t.Errorf("%s holds %q, want %q", path, got[path], want)
		}
	}
	if len(got) != 5 {
		t.Errorf("the recipe has %d files: %q", len(got), got)
	}
	changed := fstest.MapFS{}
	for name, f := range beside {
		changed[name] = f
	}
	changed["lib/a.py"] = &fstest.MapFile{Data: []byte("a = 2\n")}
	other, err := ParseRecipe("tiny.toml", []byte(tinyRecipe), changed)
	if err != nil {
		t.Fatal(err)
	}
	if other.Digest() == recipe.Digest() {
		t.Error("another content of a source gives the same digest")
	}
}
