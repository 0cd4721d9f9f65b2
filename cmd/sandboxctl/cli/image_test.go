package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mediasandbox/rootfs"
)

// imageFixture writes an image file with its manifest and returns its path.
// Only its first bytes are an EROFS file system.
func imageFixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	data := make([]byte, 8192)
	binary.LittleEndian.PutUint32(data[1024:], 0xE0F5E1E2)
	sum := sha256.Sum256(data)
	manifest, err := json.Marshal(rootfs.Manifest{
		SchemaVersion: 1, RecipeDigest: strings.Repeat("0a", 32), BuilderVersion: 1,
		Image: rootfs.ImageInfo{File: rootfs.ImageFile, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))},
		Suite: "trixie", Architecture: "amd64",
		Tools:    map[string]string{"ffmpeg": "7.1.5", "python": "3.13.5"},
		Packages: []rootfs.Package{{Name: "ffmpeg", Version: "7:7.1.5", Architecture: "amd64"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{rootfs.ImageFile: data, rootfs.ManifestFile: manifest} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, rootfs.ImageFile)
}

// sandboxctlImage runs sandboxctl image in-process.
func sandboxctlImage(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(append([]string{"sandboxctl", "image"}, args...), strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestImageVerify(t *testing.T) {
	path := imageFixture(t)
	code, stdout, stderr := sandboxctlImage("verify", path)
	if code != 0 || !strings.Contains(stdout, "is as built: 8192 bytes") || stderr != "" {
		t.Errorf("verify: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	var report imageReport
	code, stdout, stderr = sandboxctlImage("verify", "--json", path)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || !report.Verified || report.Path != path {
		t.Errorf("verify --json: exit %d, %v, stdout %q, stderr %q", code, err, stdout, stderr)
	}

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte{1}, 5000); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = sandboxctlImage("verify", path)
	if code != exitProduct || stdout != "" || !strings.Contains(stderr, "does not match its manifest") || !strings.Contains(stderr, "sandboxctl image build --force") {
		t.Errorf("verify of a damaged image: exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestImageInfo(t *testing.T) {
	path := imageFixture(t)
	code, stdout, stderr := sandboxctlImage("info", path)
	if code != 0 || stderr != "" {
		t.Fatalf("info: exit %d, stderr %q", code, stderr)
	}
	for _, want := range []string{path, "8.0 KiB", "ffmpeg", "7.1.5", "trixie amd64"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("info lacks %q:\n%s", want, stdout)
		}
	}
	var report imageReport
	code, stdout, _ = sandboxctlImage("info", "--json", path)
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || report.Manifest.Tools["python"] != "3.13.5" {
		t.Errorf("info --json: exit %d, %v, %q", code, err, stdout)
	}
}

func TestImageWrongUse(t *testing.T) {
	empty := t.TempDir()
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"build", "now"}, exitUsage, `takes no argument, but got "now"`},
		{[]string{"build", "--fast"}, exitUsage, "there is no flag --fast"},
		{[]string{"verify", "a", "b"}, exitUsage, "takes one path, but got 2"},
		{[]string{"melt"}, exitUsage, `no verb "melt"`},
		{[]string{"info", filepath.Join(empty, "none")}, exitProduct, "run: sandboxctl image build"},
		{[]string{"verify", "--cache-dir", empty}, exitProduct, "run: sandboxctl image build"},
	} {
		code, stdout, stderr := sandboxctlImage(test.args...)
		if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", test.args, code, stdout, stderr, test.code, test.want)
		}
	}
}
