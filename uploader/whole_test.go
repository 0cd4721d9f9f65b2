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

func isWhole(data []byte) bool { return whole(bytes.NewReader(data), int64(len(data))) }

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
		"empty": nil, "text": []byte("a line of text\n"), "a live recording": be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint64(0x01ffffffffffffff), "data"),
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

func FuzzWhole(f *testing.F) {
	f.Add(be(uint32(16), "ftypisom", uint32(0), uint32(8), "moov"))
	f.Add(be(uint32(0x1a45dfa3), uint8(0x83), "abc", uint32(0x18538067), uint8(0x85), "12345"))
	f.Add([]byte("OggS\x00\x04"))
	f.Fuzz(func(t *testing.T, data []byte) { isWhole(data) })
}
