package rootfs

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

// embedded holds the recipe and the files it names.
//
//go:embed recipe.toml node all:mediakit
var embedded embed.FS

// recipeFile is the embedded recipe.
const recipeFile = "recipe.toml"

// Recipe says what an image is made from. recipe.toml explains each key.
type Recipe struct {
	Suite        string            `toml:"suite" json:"suite"`
	Variant      string            `toml:"variant" json:"variant"`
	Components   []string          `toml:"components" json:"components"`
	Mtime        int64             `toml:"mtime" json:"mtime"`
	BuildSpaceMB int64             `toml:"build_space_mb" json:"-"`
	Packages     []string          `toml:"packages" json:"packages"`
	Exclude      []string          `toml:"exclude" json:"exclude"`
	Keep         []string          `toml:"keep" json:"keep"`
	Remove       []string          `toml:"remove" json:"remove"`
	Environment  map[string]string `toml:"environment" json:"environment"`
	Tools        map[string]string `toml:"tools" json:"tools"`
	Directories  []Directory       `toml:"directory" json:"directories"`
	Files        []File            `toml:"file" json:"files"`
	Folders      []Folder          `toml:"folder" json:"-"`
	Fetch        *Fetch            `toml:"fetch" json:"fetch,omitempty"`
	Prepare      []Script          `toml:"prepare" json:"prepare"`
	Checks       []Script          `toml:"check" json:"checks"`
}

// Directory is an empty directory of the image, owned by root.
type Directory struct {
	Path string `toml:"path" json:"path"`
	// Mode holds the permission bits; 0 means 0755.
	Mode uint32 `toml:"mode" json:"mode"`
}

// File is a file of the image, owned by root.
type File struct {
	Path string `toml:"path" json:"path"`
	// Mode holds the permission bits; 0 means 0644.
	Mode    uint32 `toml:"mode" json:"mode"`
	Content string `toml:"content" json:"content"`
	// Source names a file beside the recipe that has the content.
	Source string `toml:"source" json:"-"`
}

// Folder is a directory beside the recipe whose files become files of the
// image; reading the recipe turns it into them.
type Folder struct {
	Path   string `toml:"path"`
	Source string `toml:"source"`
}

// Fetch is what the image takes from elsewhere than Debian. Its script runs
// with the host's network, but in a helper tree of its own, of which only Output
// becomes part of the image.
type Fetch struct {
	Name string `toml:"name" json:"name"`
	// Packages make the helper tree. They are unpacked, not configured.
	Packages []string `toml:"packages" json:"packages"`
	// Output is a directory, the script's working directory. The recipe's files
	// below it are there when the script begins.
	Output string `toml:"output" json:"output"`
	Run    string `toml:"run" json:"run"`
}

// Script is a shell script that runs inside the image.
type Script struct {
	Name string `toml:"name" json:"name"`
	Run  string `toml:"run" json:"run"`
	// BuildOnly marks a check that holds while the image is made, not in a
	// sandbox.
	BuildOnly bool `toml:"build_only" json:"-"`
}

// Default returns the embedded recipe.
var Default = sync.OnceValues(func() (*Recipe, error) {
	data, err := embedded.ReadFile(recipeFile)
	if err != nil {
		return nil, fmt.Errorf("read the embedded recipe: %w", err)
	}
	return ParseRecipe(recipeFile, data, embedded)
})

// ParseRecipe reads a recipe strictly: a key it does not know, a bad value or
// a contradiction is an error that names the file and, where one is to blame,
// the line. The files and folders that it names as sources are in beside.
func ParseRecipe(name string, data []byte, beside fs.FS) (*Recipe, error) {
	var r Recipe
	if err := r.decode(name, data, beside); err != nil {
		return nil, err
	}
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("read recipe %s: %w", name, err)
	}
	return &r, nil
}

// decode reads a recipe without asking whether it is whole.
func (r *Recipe) decode(name string, data []byte, beside fs.FS) error {
	decoder := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return tomlError(name, err)
	}
	if err := r.readSources(beside); err != nil {
		return fmt.Errorf("read recipe %s: %w", name, err)
	}
	r.defaults()
	return nil
}

// readSources takes the content of files from beside the recipe.
func (r *Recipe) readSources(beside fs.FS) error {
	for i, f := range r.Files {
		if f.Source == "" {
			continue
		}
		if f.Content != "" {
			return fmt.Errorf("file %s has both a content and a source", f.Path)
		}
		data, err := fs.ReadFile(beside, f.Source)
		if err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		r.Files[i].Content = string(data)
	}
	for _, folder := range r.Folders {
		if err := r.readFolder(folder, beside); err != nil {
			return fmt.Errorf("folder %s: %w", folder.Path, err)
		}
	}
	return nil
}

// readFolder adds the files of a folder, in the order of their names. Tests and
// what Python leaves behind are not part of an image.
func (r *Recipe) readFolder(folder Folder, beside fs.FS) error {
	return fs.WalkDir(beside, folder.Source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "__pycache__" || d.Name() == "tests") {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := fs.ReadFile(beside, name)
		if err != nil {
			return err
		}
		target := path.Join(folder.Path, strings.TrimPrefix(name, folder.Source))
		r.Files = append(r.Files, File{Path: target, Content: string(data)})
		return nil
	})
}

// tomlError puts the position of a TOML error in front of it.
func tomlError(name string, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		first := unknown.Errors[0]
		line, _ := first.Position()
		return fmt.Errorf("read recipe %s:%d: unknown key %q", name, line, strings.Join(first.Key(), "."))
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, column := bad.Position()
		return fmt.Errorf("read recipe %s:%d:%d: %w", name, line, column, err)
	}
	return fmt.Errorf("read recipe %s: %w", name, err)
}

func (r *Recipe) defaults() {
	for i := range r.Directories {
		if r.Directories[i].Mode == 0 {
			r.Directories[i].Mode = 0o755
		}
	}
	for i := range r.Files {
		if r.Files[i].Mode == 0 {
			r.Files[i].Mode = 0o644
		}
	}
}

// word is what suites, packages and components may look like: they become
// arguments and lines of apt's sources.
var word = regexp.MustCompile(`^[a-z0-9][a-z0-9.+:-]*$`)

func (r *Recipe) validate() error {
	for _, required := range []struct{ key, value string }{{"suite", r.Suite}, {"variant", r.Variant}} {
		if !word.MatchString(required.value) {
			return fmt.Errorf("%s %q is not a plain word", required.key, required.value)
		}
	}
	if len(r.Components) == 0 {
		return errors.New("components is empty")
	}
	names := slices.Concat(r.Components, r.Packages)
	if r.Fetch != nil {
		names = append(names, r.Fetch.Packages...)
	}
	for _, name := range names {
		if !word.MatchString(name) {
			return fmt.Errorf("package or component %q is not a plain word", name)
		}
	}
	if r.Mtime <= 0 {
		return errors.New("mtime is missing: seconds since 1970")
	}
	if got, want := r.Environment["SOURCE_DATE_EPOCH"], strconv.FormatInt(r.Mtime, 10); got != want {
		return fmt.Errorf("environment SOURCE_DATE_EPOCH is %q; it must be mtime, %q", got, want)
	}
	return errors.Join(r.validatePaths(), r.validateScripts())
}

func (r *Recipe) validatePaths() error {
	paths := slices.Concat(r.Exclude, r.Keep, r.Remove)
	if r.Fetch != nil {
		paths = append(paths, r.Fetch.Output)
	}
	for _, d := range r.Directories {
		paths = append(paths, d.Path)
	}
	for _, f := range r.Files {
		paths = append(paths, f.Path)
	}
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsAny(p, "\n\x00") {
			return fmt.Errorf("path %q is not absolute and clean", p)
		}
	}
	return nil
}

func (r *Recipe) validateScripts() error {
	scripts := slices.Concat(r.Prepare, r.Checks)
	if r.Fetch != nil {
		scripts = append(scripts, Script{Name: r.Fetch.Name, Run: r.Fetch.Run})
	}
	for _, s := range scripts {
		if s.Name == "" || strings.TrimSpace(s.Run) == "" {
			return fmt.Errorf("step %q needs a name and a script", s.Name)
		}
	}
	for key, value := range r.Environment {
		if key == "" || strings.ContainsAny(key, "=\x00\n") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("environment variable %q is malformed", key)
		}
	}
	return nil
}

// Digest identifies what the recipe means together with the version of the
// builder, as 64 hexadecimal digits. Comments, layout and the order of package
// lists do not change it, nor do the versions of the packages.
func (r *Recipe) Digest() string {
	c := *r
	c.Packages = slices.Sorted(slices.Values(r.Packages))
	// Of dpkg's patterns the last match wins, but within exclude and within
	// keep all say the same.
	c.Exclude = slices.Sorted(slices.Values(r.Exclude))
	c.Keep = slices.Sorted(slices.Values(r.Keep))
	c.Remove = slices.Sorted(slices.Values(r.Remove))
	data, err := json.Marshal(struct {
		Builder int     `json:"builder"`
		Recipe  *Recipe `json:"recipe"`
	}{BuilderVersion, &c})
	if err != nil {
		// Strings, numbers, lists and string maps always marshal.
		panic(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Environ returns the recipe's environment as sorted KEY=value entries.
func (r *Recipe) Environ() []string { return environ(r.Environment) }

// Environ returns the environment that the image wants for every command run
// in it, as sorted KEY=value entries.
func (m Manifest) Environ() []string { return environ(m.Environment) }

func environ(variables map[string]string) []string {
	entries := make([]string, 0, len(variables))
	for key, value := range variables {
		entries = append(entries, key+"="+value)
	}
	slices.Sort(entries)
	return entries
}
