package rootfs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// With returns the recipe and what an overlay recipe adds to it. An overlay
// has the keys of a recipe, all of them optional: its lists are added, its
// files take the place of those with the same path, its environment and tools
// win. What belongs to the whole (suite, variant, components, mtime, fetch)
// stays the base's. The base is left as it is.
func (r *Recipe) With(overlayFile string) (*Recipe, error) {
	data, err := os.ReadFile(overlayFile)
	if err != nil {
		return nil, fmt.Errorf("read overlay recipe: %w", err)
	}
	dir, err := os.OpenRoot(filepath.Dir(overlayFile))
	if err != nil {
		return nil, fmt.Errorf("read overlay recipe: %w", err)
	}
	defer dir.Close()
	var o Recipe
	if err := o.decode(overlayFile, data, dir.FS()); err != nil {
		return nil, err
	}
	if err := o.validateOverlay(); err != nil {
		return nil, fmt.Errorf("read overlay recipe %s: %w", overlayFile, err)
	}
	whole := r.merge(&o)
	if err := whole.validate(); err != nil {
		return nil, fmt.Errorf("read overlay recipe %s: %w", overlayFile, err)
	}
	return whole, nil
}

// validateOverlay refuses what an overlay may not say.
func (r *Recipe) validateOverlay() error {
	for _, fixed := range []struct {
		key string
		set bool
	}{
		{"suite", r.Suite != ""}, {"variant", r.Variant != ""}, {"components", r.Components != nil},
		{"mtime", r.Mtime != 0}, {"build_space_mb", r.BuildSpaceMB != 0}, {"fetch", r.Fetch != nil},
	} {
		if fixed.set {
			return fmt.Errorf("%s is the whole image's; an overlay cannot set it", fixed.key)
		}
	}
	if _, ok := r.Environment["SOURCE_DATE_EPOCH"]; ok {
		return errors.New("environment SOURCE_DATE_EPOCH is the whole image's; an overlay cannot set it")
	}
	return nil
}

// merge adds an overlay to a copy of the recipe.
func (r *Recipe) merge(o *Recipe) *Recipe {
	c := *r
	c.Packages = union(r.Packages, o.Packages)
	c.Exclude = union(r.Exclude, o.Exclude)
	c.Keep = union(r.Keep, o.Keep)
	c.Remove = union(r.Remove, o.Remove)
	c.Environment = maps.Clone(r.Environment)
	maps.Copy(c.Environment, o.Environment)
	c.Tools = maps.Clone(r.Tools)
	maps.Copy(c.Tools, o.Tools)
	c.Directories = slices.Concat(r.Directories, o.Directories)
	c.Files = slices.DeleteFunc(slices.Clone(r.Files), func(f File) bool {
		return slices.ContainsFunc(o.Files, func(g File) bool { return g.Path == f.Path })
	})
	c.Files = append(c.Files, o.Files...)
	c.Prepare = slices.Concat(o.Prepare, r.Prepare)
	c.Checks = slices.Concat(r.Checks, o.Checks)
	return &c
}

func union(a, b []string) []string {
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	return slices.Compact(all)
}
