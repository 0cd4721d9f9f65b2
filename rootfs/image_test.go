package rootfs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestImage runs the recipe's checks in the image as it is on disk: the file
// that MEDIA_SANDBOX_IMAGE names, else the one of the cache. `make image` makes
// it; without it this test fails.
func TestImage(t *testing.T) {
	needRoot(t)
	path := os.Getenv("MEDIA_SANDBOX_IMAGE")
	if path == "" {
		cache, err := CacheDir("")
		if err != nil {
			t.Fatal(err)
		}
		image, err := Locate(cache)
		if err != nil {
			t.Fatal(err)
		}
		path = image.Path
	}
	image, err := Verify(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := image.Manifest.RecipeDigest, recipe.Digest(); got != want {
		t.Fatalf("%s was built from recipe %s, not %s: run make image", path, got, want)
	}
	root := extract(t, image)
	for _, d := range recipe.Directories {
		info, err := os.Stat(filepath.Join(root, d.Path))
		if err != nil {
			t.Error(err)
		} else if !info.IsDir() || info.Mode().Perm() != fileMode(d.Mode).Perm() {
			t.Errorf("%s has mode %v, want %v", d.Path, info.Mode(), fileMode(d.Mode))
		}
	}
	for _, check := range recipe.Checks {
		t.Run(check.Name, func(t *testing.T) {
			log := new(bytes.Buffer)
			in := inside{tree: root, recipe: recipe, log: log}
			if err := in.run(t.Context(), insideCheck, check.Run, nil); err != nil {
				t.Errorf("%v\n%s", err, log)
			}
		})
	}
}
