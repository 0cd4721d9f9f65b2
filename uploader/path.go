package uploader

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// maxPath bounds a path below the watched directory, in bytes. The kernel
// takes 4095 at once.
const maxPath = 4000

// Path names a file below the watched directory: slash-separated, relative,
// clean, and otherwise any bytes. string(p) is the name as the kernel knows
// it. As text (String, JSON) control characters, percent
// signs and bytes that are not UTF-8 are escaped as %XX, so that no two paths
// look the same, every one survives a journey through JSON, and none writes a
// second line into a log. (Not so as the key of a map in JSON: encoding/json
// writes those as they are.)
type Path string

// String returns the escaped form.
func (p Path) String() string {
	var b strings.Builder
	for rest := string(p); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if (r == utf8.RuneError && size == 1) || r == '%' || r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			for i := range size {
				fmt.Fprintf(&b, "%%%02X", rest[i])
			}
		} else {
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return b.String()
}

// MarshalText returns the escaped form.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the escaped form.
func (p *Path) UnmarshalText(text []byte) error {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out = append(out, text[i])
			continue
		}
		if i+2 >= len(text) {
			return fmt.Errorf("read path %q: escape is cut short", text)
		}
		hi, lo := unhex(text[i+1]), unhex(text[i+2])
		if hi < 0 || lo < 0 {
			return fmt.Errorf("read path %q: %q is no escape", text, text[i:i+3])
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	*p = Path(out)
	return nil
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// guestPath turns a path that the guest named, absolute below dir or relative
// to it, into a Path. It is not ok for a path that leads anywhere else.
func guestPath(dir, name string) (Path, bool) {
	if strings.HasPrefix(name, "/") {
		rest, found := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
		if !found {
			return "", false
		}
		name = rest
	}
	if name == "" || len(name) > maxPath || strings.IndexByte(name, 0) >= 0 {
		return "", false
	}
	name = path.Clean(name)
	if name == "." || name == ".." || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "/") {
		return "", false
	}
	return Path(name), true
}

// Temporary says whether a name looks like work in progress: a dot-file, or
// one that ends in .part or .tmp. Such files, and what is in such directories,
// are published only when they are asked for: see Config.Wanted.
func Temporary(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".tmp")
}

// temporary tells what is not published for its name.
type temporary struct {
	// wanted tells of a name that looks temporary whether it was asked for.
	wanted func(name string) bool
}

func (t temporary) name(name string) bool {
	return Temporary(name) && (t.wanted == nil || !t.wanted(name))
}

// path says whether any element of p is a temporary name.
func (t temporary) path(p Path) bool {
	for name := range strings.SplitSeq(string(p), "/") {
		if t.name(name) {
			return true
		}
	}
	return false
}

// naturalLess orders paths as people number files: frame-2 before frame-10.
func naturalLess(a, b Path) bool {
	x, y := string(a), string(b)
	for x != "" && y != "" {
		if !digit(x[0]) || !digit(y[0]) {
			if x[0] != y[0] {
				return x[0] < y[0]
			}
			x, y = x[1:], y[1:]
			continue
		}
		nx, ny := leadingDigits(x), leadingDigits(y)
		tx, ty := strings.TrimLeft(x[:nx], "0"), strings.TrimLeft(y[:ny], "0")
		if len(tx) != len(ty) {
			return len(tx) < len(ty)
		}
		if tx != ty {
			return tx < ty
		}
		x, y = x[nx:], y[ny:]
	}
	if len(x) != len(y) {
		return len(x) < len(y)
	}
	return a < b
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}
