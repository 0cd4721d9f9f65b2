// Package rootfs makes, finds and verifies the image: the read-only root file
// system (EROFS) that sandboxes boot from, with its manifest.
//
// recipe.toml says what is in the image; Builder turns a recipe into
// <cache>/<recipe digest>/image.erofs, manifest.json and sbom.spdx.json; Locate finds the image
// of the embedded recipe there; Verify reads every byte of one. Built twice
// from the same packages, an image has the same SHA-256.
//
// The package does not boot images; that is runtime/runsc. Start reading at
// recipe.toml, then at Builder.Build.
package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Names within the directory of an image.
const (
	ImageFile    = "image.erofs"
	ManifestFile = "manifest.json"
	SBOMFile     = "sbom.spdx.json"
)

// CacheEnv names the environment variable that moves the image cache.
const CacheEnv = "MEDIA_SANDBOX_CACHE"

// systemCache is where root's images live.
const systemCache = "/var/cache/media-sandbox"

// buildHint ends every error that a build would cure.
const buildHint = "run: sandboxctl image build"

// ErrNoImage says that no image of the asked recipe is in the cache.
var ErrNoImage = errors.New("no image")

// Image is an image on disk.
type Image struct {
	// Path is the EROFS file.
	Path string
	// Manifest describes it.
	Manifest Manifest
}

// Dir is the directory that holds the image and its manifest.
func (i Image) Dir() string { return filepath.Dir(i.Path) }

// CacheDir returns the directory images are cached in: dir when it is not
// empty, else $MEDIA_SANDBOX_CACHE, else the system's cache for root and the
// user's own cache directory for others.
func CacheDir(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(CacheEnv)
	}
	if dir == "" && os.Geteuid() == 0 {
		dir = systemCache
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the image cache: %w; set %s or --cache-dir", err, CacheEnv)
		}
		dir = filepath.Join(user, "media-sandbox")
	}
	return filepath.Abs(dir)
}

// Locate finds the image of the embedded recipe below the cache directory. It
// looks at the manifest, the size and the magic number, not at every byte;
// Verify does. The error wraps ErrNoImage when there is none, and says what to
// run.
func Locate(cacheDir string) (Image, error) {
	recipe, err := Default()
	if err != nil {
		return Image{}, err
	}
	return LocateRecipe(cacheDir, recipe)
}

// LocateRecipe is Locate for another recipe, such as one with an overlay.
func LocateRecipe(cacheDir string, recipe *Recipe) (Image, error) {
	dir := filepath.Join(cacheDir, recipe.Digest())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return Image{}, fmt.Errorf("locate the image: %w for recipe %.12s in %s; %s", ErrNoImage, recipe.Digest(), cacheDir, buildHint)
	}
	image, err := Open(dir)
	if err != nil {
		return Image{}, err
	}
	if got := image.Manifest.RecipeDigest; got != recipe.Digest() {
		return Image{}, mismatch(image.Path, "it was built from recipe %.12s, not %.12s", got, recipe.Digest())
	}
	return image, nil
}

// Open reads the image at path, which is an EROFS file with its manifest
// beside it or the directory that holds both. It checks what is cheap: the
// manifest, the size and the magic number.
func Open(path string) (Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Image{}, fmt.Errorf("open image: %w; %s", err, buildHint)
	}
	dir := path
	if !info.IsDir() {
		dir = filepath.Dir(path)
	} else {
		path = filepath.Join(path, ImageFile)
	}
	manifest, err := ReadManifest(filepath.Join(dir, ManifestFile))
	if err != nil {
		return Image{}, err
	}
	image := Image{Path: path, Manifest: manifest}
	return image, checkShape(image)
}
