// Package packaging holds the definition of the packages; its tests hold that
// against the program.
package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"mediasandbox/daemon/config"
	"mediasandbox/internal/testenv"
)

// commented is a key of config.toml that is switched off.
var commented = regexp.MustCompile(`(?m)^#([a-z0-9_]+ = )`)

// TestConfigIsTheDefault reads the packaged file as it is, and with every key
// switched on: both say what the daemon does without a file.
func TestConfigIsTheDefault(t *testing.T) {
	text, err := os.ReadFile("config.toml")
	if err != nil {
		t.Fatal(err)
	}
	full := commented.ReplaceAll(text, []byte("$1"))
	for name, text := range map[string][]byte{"as packaged": text, "every key": full} {
		file := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := string(got.TOML()), string(config.Default().TOML()); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	if got, want := keys(string(full)), keys(string(config.Default().TOML())); !slices.Equal(got, want) {
		t.Errorf("the packaged file has the keys\n%q\nthe daemon knows\n%q", got, want)
	}
}

// keys lists the keys of a TOML file with their tables in front, sorted.
func keys(text string) []string {
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			table = strings.TrimSuffix(name, "]") + "."
		} else if key, _, ok := strings.Cut(line, " = "); ok && !strings.HasPrefix(line, "#") {
			out = append(out, table+key)
		}
	}
	slices.Sort(out)
	return out
}

// definition is what the tests need of nfpm.yaml.
type definition struct {
	Contents []struct {
		Src  string `yaml:"src"`
		Dst  string `yaml:"dst"`
		Type string `yaml:"type"`
		Info struct {
			Mode fs.FileMode `yaml:"mode"`
		} `yaml:"file_info"`
	} `yaml:"contents"`
	Scripts map[string]string `yaml:"scripts"`
}

func readDefinition(t *testing.T) definition {
	t.Helper()
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

const libexec = "/usr/libexec/media-sandbox"

func TestPackageHoldsTheProduct(t *testing.T) {
	d := readDefinition(t)
	sources := make(map[string]string)
	var inInit, configs []string
	for _, c := range d.Contents {
		sources[c.Dst] = c.Src
		if path.Dir(c.Dst) == libexec+"/init" {
			inInit = append(inInit, path.Base(c.Dst))
		}
		if c.Type != "" {
			configs = append(configs, c.Dst+" "+c.Type)
		}
		built := strings.HasPrefix(c.Src, "bin/")
		if _, err := os.Stat(filepath.Join(testenv.Root(t), c.Src)); err != nil && !built {
			t.Errorf("%s: %v", c.Dst, err)
		}
		if executable := c.Info.Mode&0o111 != 0; executable != built || c.Info.Mode == 0 {
			t.Errorf("%s has mode %o", c.Dst, c.Info.Mode)
		}
	}
	for dst, src := range map[string]string{
		"/usr/bin/sandboxctl":          "bin/sandboxctl",
		libexec + "/sandboxd":          "bin/sandboxd",
		libexec + "/runsc":             "bin/runsc",
		libexec + "/sandbox-gate":      "bin/sandbox-gate",
		libexec + "/init/sandbox-init": "bin/init/sandbox-init",
		config.DefaultFile:             "packaging/config.toml",
	} {
		if sources[dst] != src {
			t.Errorf("%s is made of %q, not of %s", dst, sources[dst], src)
		}
	}
	if !slices.Equal(inInit, []string{"sandbox-init"}) {
		t.Errorf("every guest sees %q", inInit)
	}
	if !slices.Equal(configs, []string{config.DefaultFile + " config|noreplace"}) {
		t.Errorf("configuration files are %q", configs)
	}
}

func TestScriptsParse(t *testing.T) {
	scripts := []string{"packaging/build"}
	for _, s := range readDefinition(t).Scripts {
		scripts = append(scripts, s)
	}
	for _, s := range scripts {
		out, err := exec.Command("sh", "-n", filepath.Join(testenv.Root(t), s)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", s, err, out)
		}
	}
}
