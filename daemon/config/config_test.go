package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	tests := []struct {
		name, text, wantErr string
	}{
		{"empty", "", ""},
		{"values", "version = 1\n[limits]\nmemory = \"1GiB\"\nidle_life = \"90s\"\n", ""},
		{"unknown key", "version = 1\n\n[limits]\nmemroy = \"1GiB\"\n", "config.toml:4: unknown key limits.memroy"},
		{"unknown table", "[limit]\nmemory = \"1GiB\"\n", "config.toml:1: unknown key limit"},
		{"bad size", "[limits]\nmemory = \"lots\"\n", "config.toml:2"},
		{"bad duration", "[limits]\nidle_life = \"5 minutes\"\n", "\"5 minutes\" is not a duration"},
		{"duration without unit", "[limits]\ntimeout = 5\n", "limits.timeout is the number 5: write it like"},
		{"wrong type", "[limits]\npids = \"many\"\n", "config.toml:2"},
		{"not TOML", "[limits\n", "config.toml:1"},
		{"newer", "version = 2\n", "version is 2, this program reads 1"},
		{"bounds", "[limits]\nmemory = \"1MiB\"\n", "limits.memory is 1.0 MiB"},
		{"relative path", "[paths]\nstate_dir = \"x\"\n", "paths.state_dir is \"x\""},
		{"network", "[network]\nmode = \"allowlist\"\nrules = [\"allow tcp *.test:443\"]\nservices = [\"a.test:80 = 127.0.0.1:8080\"]\ntotal = \"1GiB\"\n", ""},
		{"network mode", "[network]\nmode = \"open\"\n", "network.mode is \"open\""},
		{"network rule", "[network]\nrules = [\n  \"allow a.test\",\n  \"permit b.test\",\n]\n", "config.toml:4"},
		{"network service", "[network]\nservices = [\"a.test:80 = 10.0.0.1:80\"]\n", "is not a loopback address"},
		{"network bandwidth", "[network]\nbandwidth = \"1KiB\"\n", "network.bandwidth is 1.0 KiB"},
		{"metrics", "[metrics]\nlisten = \"[::1]:9477\"\n", ""},
		{"metrics for all", "[metrics]\nlisten = \"0.0.0.0:9477\"\n", "metrics.listen is \"0.0.0.0:9477\", it must be an address of loopback"},
		{"metrics by name", "[metrics]\nlisten = \"localhost:9477\"\n", "it must be an address of loopback"},
		{"metrics on any port", "[metrics]\nlisten = \"127.0.0.1:0\"\n", "it must be an address of loopback"},
		{"store", "[store]\nkind = \"ftp\"\n", "store.kind is \"ftp\""},
		{"s3 without bucket", "[store]\nkind = \"s3\"\n[store.s3]\nregion = \"x\"\n", "store.s3.bucket is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.toml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if tt.wantErr == "" && err != nil {
				t.Fatal(err)
			}
			if tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)) {
				t.Errorf("error %v, want one with %q", err, tt.wantErr)
			}
		})
	}
}

func TestValuesOverDefaults(t *testing.T) {
	c, err := parse("f", []byte("[limits]\nmemory = \"1GiB\"\nidle_life = \"90s\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Limits.Memory != 1<<30 || c.Limits.IdleLife != Duration(90*time.Second) || c.Limits.PIDs != Default().Limits.PIDs {
		t.Errorf("got %+v", c.Limits)
	}
}

func TestNamedFileMustExist(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "nowhere.toml")); err == nil {
		t.Error("a missing file was taken for an empty one")
	}
}

func TestWrittenConfigReadsBack(t *testing.T) {
	want := Default()
	got, err := parse("f", want.TOML())
	if err != nil {
		t.Fatal(err)
	}
	if string(got.TOML()) != string(want.TOML()) {
		t.Errorf("got\n%s\nwant\n%s", got.TOML(), want.TOML())
	}
}
