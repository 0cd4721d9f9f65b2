package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is one entry of apt's sources.
type source struct {
	uri, suite string
	components []string
	signedBy   string
}

func (s source) String() string {
	return "deb " + s.uri + " " + s.suite + " " + strings.Join(s.components, " ")
}

// keyring is where an image keeps Debian's keys.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// readSources reads apt's sources below an /etc/apt, both in the one-line and
// in the deb822 format, in apt's order.
func readSources(dir string) ([]source, error) {
	paths := []string{filepath.Join(dir, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(dir, "sources.list.d", pattern))
		if err != nil {
			return nil, fmt.Errorf("read apt sources: %w", err)
		}
		paths = append(paths, found...)
	}
	var sources []source
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read apt sources: %w", err)
		}
		if strings.HasSuffix(path, ".sources") {
			sources = append(sources, parseDeb822(string(data))...)
		} else {
			sources = append(sources, parseOneLine(string(data))...)
		}
	}
	return sources, nil
}

// parseOneLine reads lines such as 'deb [signed-by=F] URI SUITE COMPONENT…'.
func parseOneLine(text string) []source {
	var sources []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		rest, found := strings.CutPrefix(line, "deb ")
		if !found {
			continue
		}
		var s source
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			var options string
			options, rest, _ = strings.Cut(rest[1:], "]")
			for option := range strings.FieldsSeq(options) {
				if value, ok := strings.CutPrefix(option, "signed-by="); ok {
					s.signedBy = strings.Trim(value, `"`)
				}
			}
		}
		fields := strings.Fields(rest)
		if len(fields) < 3 {
			continue
		}
		s.uri, s.suite, s.components = fields[0], fields[1], fields[2:]
		sources = append(sources, s)
	}
	return sources
}

// parseDeb822 reads stanzas of 'Key: value' lines.
func parseDeb822(text string) []source {
	var sources []source
	for stanza := range strings.SplitSeq(text, "\n\n") {
		keys := make(map[string]string)
		var last string
		for line := range strings.Lines(stanza) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			if strings.HasPrefix(line, " ") {
				keys[last] += " " + strings.TrimSpace(line)
				continue
			}
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(key))
			keys[last] = strings.TrimSpace(value)
		}
		disabled := keys["enabled"] == "no" || keys["enabled"] == "false"
		if disabled || !slices.Contains(strings.Fields(keys["types"]), "deb") {
			continue
		}
		for uri := range strings.FieldsSeq(keys["uris"]) {
			for suite := range strings.FieldsSeq(keys["suites"]) {
				sources = append(sources, source{uri, suite, strings.Fields(keys["components"]), keys["signed-by"]})
			}
		}
	}
	return sources
}

// mirrors are the archives that packages come from; empty means unknown.
type mirrors struct{ main, security string }

// debianMirrors picks Debian's own archives out of a host's apt sources. Only
// http and https count: a mirror list of the host would not serve the image.
func debianMirrors(sources []source, codename string) mirrors {
	var m mirrors
	for _, s := range sources {
		web := strings.HasPrefix(s.uri, "http://") || strings.HasPrefix(s.uri, "https://")
		signed := s.signedBy == "" || strings.Contains(s.signedBy, "debian-archive")
		if !web || !signed || !slices.Contains(s.components, "main") || checkMirror(s.uri) != nil {
			continue
		}
		uri := strings.TrimSuffix(s.uri, "/")
		switch {
		case s.suite == codename && m.main == "":
			m.main = uri
		case s.suite == codename+"-security" && m.security == "":
			m.security = uri
		}
	}
	return m
}

// hostMirrors returns the archives a Debian host uses.
func hostMirrors(root string) (mirrors, error) {
	release, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if errors.Is(err, fs.ErrNotExist) {
		return mirrors{}, nil
	}
	if err != nil {
		return mirrors{}, fmt.Errorf("read the host's release: %w", err)
	}
	keys := make(map[string]string)
	for line := range strings.Lines(string(release)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		keys[key] = strings.Trim(value, `"`)
	}
	if keys["ID"] != "debian" || keys["VERSION_CODENAME"] == "" {
		return mirrors{}, nil
	}
	sources, err := readSources(filepath.Join(root, "etc/apt"))
	if err != nil {
		return mirrors{}, err
	}
	return debianMirrors(sources, keys["VERSION_CODENAME"]), nil
}

// checkMirror refuses a mirror that could not stand in the image's apt sources.
func checkMirror(mirror string) error {
	u, err := url.Parse(mirror)
	if err != nil {
		return fmt.Errorf("mirror %q: %w", mirror, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(mirror, " \t\n") {
		return fmt.Errorf("mirror %q is not an http or https address", mirror)
	}
	if u.User != nil {
		return fmt.Errorf("mirror %s: a user or password would end up in the image; use a mirror that asks for none", u.Redacted())
	}
	return nil
}

// lines returns the apt sources for a suite; none means that mmdebstrap is to
// use the archive it knows.
func (m mirrors) lines(r *Recipe) []string {
	if m.main == "" {
		return nil
	}
	lines := []string{
		source{uri: m.main, suite: r.Suite, components: r.Components}.String(),
		source{uri: m.main, suite: r.Suite + "-updates", components: r.Components}.String(),
	}
	if m.security != "" {
		lines = append(lines, source{uri: m.security, suite: r.Suite + "-security", components: r.Components}.String())
	}
	return lines
}

// deb822 writes sources the way an image keeps them.
func deb822(sources []source) string {
	var b strings.Builder
	for i, s := range sources {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n",
			s.uri, s.suite, strings.Join(s.components, " "), keyring)
	}
	return b.String()
}
