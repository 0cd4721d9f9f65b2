package rootfs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// manifestSchema is the version of the manifest's layout.
const manifestSchema = 1

// Manifest describes an image. It lies beside it as manifest.json.
type Manifest struct {
	SchemaVersion  int    `json:"schema_version"`
	RecipeDigest   string `json:"recipe_digest"`
	BuilderVersion int    `json:"builder_version"`
	// Image is the file that the manifest speaks of.
	Image ImageInfo `json:"image"`
	// Mtime is the modification time of every file in the image, in seconds
	// since 1970.
	Mtime        int64    `json:"mtime"`
	Suite        string   `json:"suite"`
	Architecture string   `json:"architecture"`
	Sources      []string `json:"sources"`
	// Environment is what the image wants set for every command.
	Environment map[string]string `json:"environment"`
	// Tools are versions as the tools of the image print them.
	Tools map[string]string `json:"tools"`
	// BuiltWith are the versions of the host's tools. Another mkfs.erofs may
	// lay out the same files differently.
	BuiltWith map[string]string `json:"built_with"`
	Packages  []Package         `json:"packages"`
	// Modules are the packages that came from npm.
	Modules []Module `json:"modules,omitempty"`
}

// ImageInfo identifies an image file.
type ImageInfo struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// Package is a Debian package installed in an image.
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	// Licenses are the names that its copyright file uses, where that file is
	// in Debian's machine-readable form.
	Licenses []string `json:"licenses,omitempty"`
}

// Module is a package from npm in an image.
type Module struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license,omitempty"`
	// Integrity is what npm checked the tarball against, as 'sha512-' and
	// base64. What came within another package's tarball has none.
	Integrity string `json:"integrity,omitempty"`
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ReadManifest reads and checks a manifest.
func ReadManifest(path string) (Manifest, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("read image manifest: %w; %s", err, buildHint)
	}
	var m Manifest
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("read image manifest %s: %w; %s --force", path, err, buildHint)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Manifest{}, fmt.Errorf("read image manifest %s: data after its end; %s --force", path, buildHint)
	}
	if err := m.validate(); err != nil {
		return Manifest{}, fmt.Errorf("read image manifest %s: %w; %s --force", path, err, buildHint)
	}
	return m, nil
}

func (m Manifest) validate() error {
	switch {
	case m.SchemaVersion != manifestSchema:
		return fmt.Errorf("schema version is %d; this program reads %d", m.SchemaVersion, manifestSchema)
	case !digestForm.MatchString(m.RecipeDigest):
		return fmt.Errorf("recipe_digest %q is not a SHA-256", m.RecipeDigest)
	case !digestForm.MatchString(m.Image.SHA256):
		return fmt.Errorf("image.sha256 %q is not a SHA-256", m.Image.SHA256)
	case m.Image.Size <= 0:
		return fmt.Errorf("image.size is %d", m.Image.Size)
	case m.Image.File != ImageFile:
		return fmt.Errorf("image.file is %q; it must be %q", m.Image.File, ImageFile)
	case len(m.Packages) == 0:
		return fmt.Errorf("it names no package")
	}
	return nil
}

// write stores the manifest at path, synced to disk.
func (m Manifest) write(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write image manifest: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write image manifest: %w", err)
	}
	defer file.Close()
	if _, err := file.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("write image manifest: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write image manifest: %w", err)
	}
	return file.Close()
}

// parseStatus reads the installed packages out of dpkg's status file, sorted
// by name and architecture.
func parseStatus(status io.Reader) ([]Package, error) {
	var packages []Package
	var current Package
	var installed bool
	flush := func() {
		if installed && current.Name != "" {
			packages = append(packages, current)
		}
		current, installed = Package{}, false
	}
	lines := bufio.NewScanner(status)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			flush()
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "Package":
			current.Name = value
		case "Version":
			current.Version = value
		case "Architecture":
			current.Architecture = value
		case "Status":
			installed = value == "install ok installed"
		}
	}
	flush()
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read dpkg status: %w", err)
	}
	slices.SortFunc(packages, func(a, b Package) int {
		return strings.Compare(a.Name+" "+a.Architecture, b.Name+" "+b.Architecture)
	})
	return packages, nil
}
