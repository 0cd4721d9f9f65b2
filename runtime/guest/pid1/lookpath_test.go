package pid1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"first/tool": 0o755, "second/tool": 0o755, "second/other": 0o755, "first/plain": 0o644, "second/plain": 0o755, "first/only": 0o644} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "first/folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"A=b", "PATH=" + filepath.Join(dir, "first") + ":" + filepath.Join(dir, "second")}
	for _, tt := range []struct{ name, want, wantErr string }{
		{"tool", "first/tool", ""},
		{"other", "second/other", ""},
		{"plain", "second/plain", ""}, // the first one can't be run
		{"only", "", "only: command not found"},
		{"folder", "", "folder: command not found"},
		{"none", "", "none: command not found"},
		{"", "", "the command is empty"},
		{"./tool", "second/tool", ""}, // from the working directory, not the path
		{"../first/tool", "first/tool", ""},
		{"./none", "", "./none: no such file or directory"},
		{filepath.Join(dir, "first/only"), "", "permission denied"},
		{filepath.Join(dir, "first/folder"), "", "is a directory"},
		{filepath.Join(dir, "first/tool/x"), "", "not a directory"},
		{filepath.Join(dir, "second/other"), "second/other", ""},
	} {
		got, err := lookPath([]string{tt.name, "argument"}, env, filepath.Join(dir, "second"))
		if tt.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("%q: %q, %v; want an error with %q", tt.name, got, err, tt.wantErr)
			}
			want := 127
			if strings.Contains(tt.wantErr, "denied") || strings.Contains(tt.wantErr, "is a dir") {
				want = 126
			}
			if code := refusal(err); code != want {
				t.Errorf("%q: exit code %d, want %d", tt.name, code, want)
			}
			continue
		}
		if err != nil || got != filepath.Join(dir, tt.want) {
			t.Errorf("%q: %q, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	if _, err := lookPath(nil, env, dir); err == nil {
		t.Error("no command at all was found")
	}
	if got, err := lookPath([]string{"sh"}, nil, dir); err != nil || filepath.Base(got) != "sh" {
		t.Errorf("without a PATH: %q, %v", got, err)
	}
}
