package export

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"mediasandbox/daemon/api"
)

// maxName bounds one element of a path, in bytes: most file systems take 255,
// and whoever unpacks adds to it.
const maxName = 150

// reserved are the names that Windows keeps for devices, whatever follows
// their first dot.
var reserved = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])$`)

// safe makes one element of a path that every system can unpack: no separator,
// no device, no control or format character, nothing that Windows refuses. What
// is left empty becomes instead.
func safe(name, instead string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, strings.ContainsRune(`<>:"/\|?*`, r), unicode.IsControl(r), unicode.Is(unicode.Cf, r):
			return '_'
		}
		return r
	}, norm.NFC.String(name))
	name = shorten(name)
	name = strings.TrimRight(strings.TrimLeft(name, " "), ". ")
	if strings.Trim(name, "._ ") == "" {
		return instead
	}
	if stem, _, _ := strings.Cut(name, "."); reserved.MatchString(strings.TrimRight(stem, " ")) {
		name = "_" + name
	}
	return name
}

// shorten keeps the extension of a name that is too long.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	ext := path.Ext(name)
	if len(ext) > 20 {
		ext = ""
	}
	stem := name[:maxName-len(ext)]
	for !utf8.ValidString(stem) {
		stem = stem[:len(stem)-1]
	}
	return stem + ext
}

// labelDir is the folder of a label.
func labelDir(label string) string {
	if label == "" {
		return "-"
	}
	return safe(label, "-")
}

// namer gives every file a path that differs from all others also where upper
// and lower case are the same.
type namer struct {
	fold  cases.Caser
	taken map[string]bool
}

func newNamer() *namer { return &namer{cases.Fold(), make(map[string]bool)} }

func (n *namer) name(dir string, c api.Cell) string {
	ext := path.Ext(c.File.Name)
	file := safe(c.File.Name, "")
	if file == "" {
		file = safe(fmt.Sprintf("gen-%d%s", c.Ordinal, ext), fmt.Sprintf("gen-%d", c.Ordinal))
	}
	full := path.Join(dir, file)
	ext = path.Ext(file)
	for i := 0; n.taken[n.fold.String(full)]; i++ {
		mark := fmt.Sprintf("-%d", c.Ordinal)
		if i > 0 {
			mark += fmt.Sprintf("-%d", i)
		}
		full = path.Join(dir, strings.TrimSuffix(file, ext)+mark+ext)
	}
	n.taken[n.fold.String(full)] = true
	return full
}
