package uploader

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"testing"

	"mediasandbox/internal/testenv"
)

func isWhole(data []byte) bool {
	ends, _ := whole(bytes.NewReader(data), int64(len(data)))
	return ends
}

// be appends big-endian numbers and text.
func be(parts ...any) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		if s, ok := p.(string); ok {
			b.WriteString(s)
			continue
		}
		binary.Write(&b, binary.BigEndian, p)
	}
	return b.Bytes()
}

// finishedFiles are whole ones of every format that has an end.
func finishedFiles(t *testing.T) map[string][]byte {
	t.Helper()
	picture := image.NewPaletted(image.Rect(0, 0, 40, 30), color.Palette{color.Black, color.White})
	for i := range picture.Pix {
		picture.Pix[i] = uint8(i % 7 % 2)
	}
	encode := func(f func(*bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	media := func(name string) []byte {
		data, err := os.ReadFile(testenv.Media(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	return map[string][]byte{
		"png":  encode(func(b *bytes.Buffer) error { return png.Encode(b, picture) }),
		"jpeg": encode(func(b *bytes.Buffer) error { return jpeg.Encode(b, picture, nil) }),
		"gif":  encode(func(b *bytes.Buffer) error { return gif.Encode(b, picture, nil) }),
		"zip": encode(func(b *bytes.Buffer) error {
			z := zip.NewWriter(b)
			if w, err := z.Create("a"); err != nil {
				return err
			} else if _, err := w.Write([]byte("text")); err != nil {
				return err
			}
			return z.Close()
		}),
		"photo":       media("coffee.png"),
		"wav":         append([]byte("RIFF\x0c\x00\x00\x00WAVEdata"), 0, 0, 0, 0),
		"bmp":         append([]byte("BM\x1a\x00\x00\x00"), make([]byte, 20)...),
		"mp4":         be(uint32(16), "ftypisom", uint32(0), uint32(12), "mdat", uint32(7), uint32(1), "free", uint64(18), "xx", uint32(8), "moov"),
		"heic":        be(uint32(16), "ftypheic", uint32(0), uint32(8), "meta", uint32(9), "mdatx"),
		"webm":        be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint8(0x01), uint8(0), uint16(0), uint32(5), "12345"),
		"ogg":         be("OggS", uint8(0), uint8(2), make([]byte, 21), "first", "OggS", uint8(0), uint8(4), make([]byte, 21)),
		"pdf":         []byte("%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF"),
		"svg":         []byte(`<svg xmlns="http://www.w3.org/2000/svg"><g></g></svg>`),
		"xml":         []byte("<?xml version='1.0'?>\n<!-- x --><tt:tt xml:lang='en'><p>a</p></tt:tt>"),
		"html":        []byte("<!doctype html><html><p>text</p></html>"),
		"json":        []byte("{\n  \"a\": [1, 2]\n}"),
		"numpy":       append([]byte("\x93NUMPY\x01\x00\x3b\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), make([]byte, 24)...),
		"grey":        append([]byte("P5\n4 3\n255\n"), make([]byte, 12)...),
		"color":       append([]byte("P6 4 3 65535\n"), make([]byte, 72)...),
		"one segment": be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint8(0x85), "12345"),
	}
}

// TestNoBeginningOfAFileIsWhole looks at every file as its writer leaves it on
// the way.
func TestNoBeginningOfAFileIsWhole(t *testing.T) {
	for name, data := range finishedFiles(t) {
		if !isWhole(data) {
			t.Errorf("%s: the finished file is not whole", name)
		}
		step := max(1, len(data)/2000)
		for n := 0; n < len(data); n += step {
			// An Ogg page that says it is the last is so from its header on.
			if isWhole(data[:n]) && name != "ogg" {
				t.Errorf("%s: the first %d of %d bytes are taken for whole", name, n, len(data))
				break
			}
		}
	}
}

func TestWhatHasNoEndIsNeverWhole(t *testing.T) {
	for name, data := range map[string][]byte{
		"json by the line": []byte(`{"frame": 1}` + "\n"), "rows": []byte("[1]\n[2]\n"), "array of no size": []byte("\x93NUMPY\x01\x00\x04\x00{'a'"),
		"huge array": []byte("\x93NUMPY\x01\x00\x30\x00{'descr': '<f8', 'shape': (99999999999, 99999999999)}"),
		"empty":      nil, "text": []byte("a line of text\n"), "a live recording": be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint64(0x01ffffffffffffff), "data"),
		"mp4 without its index": be(uint32(16), "ftypisom", uint32(0), uint32(12), "mdat", uint32(7)),
		"mp4 to the end":        be(uint32(16), "ftypisom", uint32(0), uint32(8), "moov", uint32(0), "mdat", uint32(7)),
		"box of no length":      be(uint32(16), "ftypisom", uint32(0), uint32(1), "moov", uint64(1)),
		"wav of unknown length": []byte("RIFF\xff\xff\xff\xffWAVEdata"),
		"png and more":          append(finishedFiles(t)["png"], "more"...),
	} {
		if isWhole(data) {
			t.Errorf("%s is taken for whole", name)
		}
	}
}

func TestShapes(t *testing.T) {
	for want, files := range map[shape][][]byte{
		shapeOpenEnded: {nil, []byte("a,b\n1,2\n"), []byte("Grüße\r\n"), []byte("caf\xe9\n"), []byte("\x89PNG\r\n\x1a\n\x00half")},
		shapeBinary:    {{0}, {0xff, 0xfb, 0x90, 0x00}},
		shapeWhole:     {finishedFiles(t)["png"]},
	} {
		for _, data := range files {
			if got := shapeOf(bytes.NewReader(data), int64(len(data))); got != want {
				t.Errorf("%.20q has shape %d, want %d", data, got, want)
			}
		}
	}
}

func FuzzWhole(f *testing.F) {
	f.Add(be(uint32(16), "ftypisom", uint32(0), uint32(8), "moov"))
	f.Add(be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint8(0x85), "12345"))
	f.Add([]byte("OggS\x00\x04"))
	f.Fuzz(func(t *testing.T, data []byte) { shapeOf(bytes.NewReader(data), int64(len(data))) })
}
