package uploader

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzPathText(f *testing.F) {
	for _, s := range []string{"a", "a/b", "%", "%41", "caf\xe9", "two\nlines", "🎬", "\u0085", "\xff/%FF", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := Path(s).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.Valid(text) || strings.ContainsFunc(string(text), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q is written as %q", s, text)
		}
		var back Path
		if err := back.UnmarshalText(text); err != nil || string(back) != s {
			t.Errorf("%q came back as %q, %v", s, string(back), err)
		}
	})
}

func FuzzGuestPath(f *testing.F) {
	for _, s := range []string{"/outputs/a", "a/../../b", "/outputs/..", "..", "//", "/outputs//a/./b", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := guestPath("/outputs", s)
		if !ok {
			return
		}
		for name := range strings.SplitSeq(string(p), "/") {
			if name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 {
				t.Errorf("%q became %q", s, string(p))
			}
		}
	})
}

func TestPathErrors(t *testing.T) {
	for _, s := range []string{"%", "%4", "%zz", "a%"} {
		var p Path
		if err := p.UnmarshalText([]byte(s)); err == nil {
			t.Errorf("%q was read as %q", s, string(p))
		}
	}
}

func TestNaturalOrder(t *testing.T) {
	want := []Path{"a", "a/1", "a/2", "a/10", "f-2.png", "f-10.png", "f-010b", "x01", "x1"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b Path) int {
		if naturalLess(a, b) {
			return -1
		}
		return 1
	})
	if !slices.Equal(got, want) {
		t.Errorf("sorted as %v, want %v", got, want)
	}
	for _, a := range want {
		if naturalLess(a, a) {
			t.Errorf("%s sorts before itself", a)
		}
	}
}

func TestTemporary(t *testing.T) {
	for name, want := range map[string]bool{
		"a.part": true, "a.tmp": true, ".~lock": true, ".hidden": true, "a.png": false, "tmp": false, "a.tmp.png": false, "..a": true,
	} {
		if Temporary(name) != want {
			t.Errorf("Temporary(%q) is %v", name, !want)
		}
	}
}
