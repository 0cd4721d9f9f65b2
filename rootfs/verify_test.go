package rootfs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// fakeImage writes an image of four blocks with its manifest into the place in
// cacheDir where recipe's image belongs, and returns its directory. Only its
// first bytes are an EROFS file system.
func fakeImage(t *testing.T, cacheDir string, recipe *Recipe) string {
	t.Helper()
	dir := filepath.Join(cacheDir, recipe.Digest())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4*erofsBlock)
	binary.LittleEndian.PutUint32(data[erofsOffset:], erofsMagic)
	if err := os.WriteFile(filepath.Join(dir, ImageFile), data, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	manifest := Manifest{
		SchemaVersion: manifestSchema, RecipeDigest: recipe.Digest(), BuilderVersion: BuilderVersion,
		Image:    ImageInfo{File: ImageFile, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))},
		Mtime:    recipe.Mtime,
		Suite:    recipe.Suite,
		Packages: []Package{{Name: "zip", Version: "3.0-15", Architecture: "amd64"}},
	}
	if err := manifest.write(filepath.Join(dir, ManifestFile)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerify(t *testing.T) {
	recipe := mustParse(t, tinyRecipe)
	dir := fakeImage(t, t.TempDir(), recipe)
	for _, path := range []string{dir, filepath.Join(dir, ImageFile)} {
		image, err := Verify(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if image.Path != filepath.Join(dir, ImageFile) || image.Dir() != dir {
			t.Errorf("Verify(%s) is image %s in %s", path, image.Path, image.Dir())
		}
		again, err := ReadManifest(filepath.Join(dir, ManifestFile))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(image.Manifest, again) {
			t.Errorf("manifest is %+v, want %+v", image.Manifest, again)
		}
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	patch := func(file string, offset int64, data string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte(data), offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(file string, size int64) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, file), size); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(file string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit := func(old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, ManifestFile)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Replace(string(data), old, new, 1)
			if text == string(data) {
				t.Fatalf("%q is not in the manifest", old)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
		// open is set when the cheap look finds the damage too.
		open bool
	}{
		{"one bit", patch(ImageFile, 9000, "\x01"), "does not match its manifest: its SHA-256 is", false},
		{"magic", patch(ImageFile, erofsOffset, "ext4"), "not an EROFS file system", true},
		{"truncated", truncate(ImageFile, 3*erofsBlock), "it has 12288 bytes, not 16384", true},
		{"empty", truncate(ImageFile, 0), "it has 0 bytes, not 16384", true},
		{"longer", truncate(ImageFile, 5*erofsBlock), "it has 20480 bytes, not 16384", true},
		{"no image", remove(ImageFile), "no such file", true},
		{"no manifest", remove(ManifestFile), "no such file", true},
		{"half a manifest", truncate(ManifestFile, 50), "read image manifest", true},
		{"manifest of another schema", edit(`"schema_version": 1`, `"schema_version": 7`), "schema version is 7", true},
		{"manifest with an unknown key", edit(`"suite"`, `"suit"`), `unknown field "suit"`, true},
		{"manifest without a digest", edit(`"sha256": "`, `"sha256": "z`), "is not a SHA-256", true},
		{"manifest of another file", edit(`"file": "image.erofs"`, `"file": "../image"`), "image.file is", true},
		{"manifest without packages", edit(`"name": "zip"`, `"nome": "zip"`), "unknown field", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := fakeImage(t, t.TempDir(), mustParse(t, tinyRecipe))
			test.damage(t, dir)
			_, err := Verify(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "sandboxctl image build --force") && !strings.Contains(err.Error(), buildHint) {
				t.Errorf("Verify: %v; want %q and what to run", err, test.want)
			}
			if _, err := Open(dir); (err != nil) != test.open {
				t.Errorf("Open: %v; want an error: %v", err, test.open)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	cache := t.TempDir()
	_, err := Locate(cache)
	if !errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), "run: sandboxctl image build") {
		t.Fatalf("Locate in an empty cache: %v", err)
	}
	recipe, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	dir := fakeImage(t, cache, recipe)
	image, err := Locate(cache)
	if err != nil {
		t.Fatal(err)
	}
	if image.Dir() != dir {
		t.Errorf("image is in %s, want %s", image.Dir(), dir)
	}

	// An image of another recipe in the wrong place is not taken for it.
	other := fakeImage(t, t.TempDir(), mustParse(t, tinyRecipe))
	for _, file := range []string{ImageFile, ManifestFile} {
		if err := os.Rename(filepath.Join(other, file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Locate(cache); err == nil || !strings.Contains(err.Error(), "it was built from recipe") {
		t.Errorf("Locate of another recipe's image: %v", err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(CacheEnv, "/from/environment")
	for _, test := range []struct{ dir, want string }{{"/given", "/given"}, {"", "/from/environment"}} {
		got, err := CacheDir(test.dir)
		if err != nil || got != test.want {
			t.Errorf("CacheDir(%q) = %q, %v; want %q", test.dir, got, err, test.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	packages, err := parseStatus(strings.NewReader(`Package: zip
Status: install ok installed
Architecture: amd64
Version: 3.0-15
Description: Archiver
 Version: 1 is what this line is not

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.152
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{
		{Name: "adduser", Version: "3.152", Architecture: "all"},
		{Name: "zip", Version: "3.0-15", Architecture: "amd64"},
	}
	if !reflect.DeepEqual(packages, want) {
		t.Errorf("packages are %v, want %v", packages, want)
	}
}
