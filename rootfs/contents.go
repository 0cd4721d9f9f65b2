package rootfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// packages lists the packages dpkg knows as installed, with the licences that
// their copyright files name.
func (t tree) packages() ([]Package, error) {
	status, err := t.root.ReadFile("var/lib/dpkg/status")
	if err != nil {
		return nil, fmt.Errorf("list the image's packages: %w", err)
	}
	packages, err := parseStatus(bytes.NewReader(status))
	if err != nil {
		return nil, err
	}
	for i, p := range packages {
		text, err := t.root.ReadFile("usr/share/doc/" + p.Name + "/copyright")
		if err != nil {
			// Some share the file of another package by a link.
			continue
		}
		packages[i].Licenses = licenses(string(text))
	}
	return packages, nil
}

// licenses returns the short names of the licences in a copyright file of
// Debian's machine-readable form, sorted; none for other files.
func licenses(copyright string) []string {
	if !strings.HasPrefix(copyright, "Format:") {
		return nil
	}
	var names []string
	for line := range strings.Lines(copyright) {
		if name, ok := strings.CutPrefix(line, "License:"); ok {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// modules lists the packages of npm's lock file that lie in dir.
func (t tree) modules(dir string) ([]Module, error) {
	data, err := t.root.ReadFile(relative(path.Join(dir, "package-lock.json")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the image's npm packages: %w", err)
	}
	var lock struct {
		Packages map[string]struct{ Name, Version, License, Integrity string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("list the image's npm packages: read package-lock.json: %w", err)
	}
	var modules []Module
	for place, p := range lock.Packages {
		// Those of other systems and for development are in the lock only.
		_, err := t.root.Stat(relative(path.Join(dir, place, "package.json")))
		if place == "" || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the image's npm packages: %w", err)
		}
		name := p.Name
		if name == "" {
			_, name, _ = cutLast(place, "node_modules/")
		}
		modules = append(modules, Module{Name: name, Version: p.Version, License: p.License, Integrity: p.Integrity})
	}
	slices.SortFunc(modules, func(a, b Module) int {
		return strings.Compare(a.Name+" "+a.Version, b.Name+" "+b.Version)
	})
	return slices.CompactFunc(modules, func(a, b Module) bool { return a.Name == b.Name && a.Version == b.Version }), nil
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(separator):], true
}
