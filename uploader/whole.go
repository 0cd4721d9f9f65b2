package uploader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// shape is what a closed file looks like. It reads little, of content that is
// hostile, and decides nothing but the time.
type shape int

const (
	// shapeOpenEnded is text, an empty file, or one that could not be read: what
	// programs open again and again to append to. So is a file whose format has
	// an end that it has not reached.
	shapeOpenEnded shape = iota
	// shapeBinary is anything else without an end of its own.
	shapeBinary
	// shapeWhole is complete by its own format.
	shapeWhole
)

func shapeOf(f io.ReaderAt, size int64) shape {
	switch ends, known := whole(f, size); {
	case ends:
		return shapeWhole
	case known:
		return shapeOpenEnded
	}
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) || isText(head[:n]) {
		return shapeOpenEnded
	}
	return shapeBinary
}

// isText tells whether nothing in b is foreign to a text, in any encoding that
// has ASCII's control characters. Nothing at all is text.
func isText(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r\f\x1b", r) })
}

// whole tells whether a file is, by its own format, all that it is going to be:
// it says how long it is and is that long, or it ends with the mark of its end.
// A closed file of which that is true need not settle, since nobody comes back
// to append to a finished picture. Formats without an end are never whole.
// Whether it is of a format that has an end is known.
func whole(f io.ReaderAt, size int64) (ends, known bool) {
	head := make([]byte, 32)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) || n < 12 {
		return false, false
	}
	head = head[:n]
	for _, format := range formats {
		if bytes.HasPrefix(head[format.offset:], []byte(format.magic)) {
			return format.ends(f, size, head), true
		}
	}
	return false, false
}

// formats tell by their first bytes what ends a file.
var formats = []struct {
	offset int
	magic  string
	ends   func(f io.ReaderAt, size int64, head []byte) bool
}{
	{0, "\x89PNG\r\n\x1a\n", endsWith("\x00\x00\x00\x00IEND\xaeB`\x82")},
	{0, "\xff\xd8\xff", endsWith("\xff\xd9")},
	{0, "GIF8", endsWith("\x3b")},
	{0, "RIFF", func(_ io.ReaderAt, size int64, head []byte) bool {
		n := int64(binary.LittleEndian.Uint32(head[4:])) + 8
		return n == size || n+n%2 == size
	}},
	{0, "BM", func(_ io.ReaderAt, size int64, head []byte) bool {
		return int64(binary.LittleEndian.Uint32(head[2:])) == size
	}},
	{0, "PK\x03\x04", zipEnds},
	{0, "\x1a\x45\xdf\xa3", matroskaEnds},
	{0, "OggS", oggEnds},
	{4, "ftyp", boxesEnd},
	{0, "%PDF-", trimmedEnd("%%EOF")},
	{0, "<svg", trimmedEnd("</svg>")},
	{0, "<?xml", xmlEnds},
	{0, "<!DOCTYPE html", trimmedEnd("</html>")},
	{0, "<!doctype html", trimmedEnd("</html>")},
	{0, "\x93NUMPY\x01", numpyEnds},
	{0, "P5", pixmapEnds(1)},
	{0, "P6", pixmapEnds(3)},
	{0, "{", jsonEnds},
	{0, "[", jsonEnds},
}

func endsWith(mark string) func(io.ReaderAt, int64, []byte) bool {
	return func(f io.ReaderAt, size int64, _ []byte) bool {
		return bytes.HasSuffix(tail(f, size, int64(len(mark))), []byte(mark))
	}
}

// tail reads the last n bytes, or fewer.
func tail(f io.ReaderAt, size, n int64) []byte {
	n = min(n, size)
	b := make([]byte, n)
	if _, err := f.ReadAt(b, size-n); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return b
}

// zipEnds looks for the end of the central directory, without a comment.
func zipEnds(f io.ReaderAt, size int64, _ []byte) bool {
	end := tail(f, size, 22)
	return len(end) == 22 && bytes.HasPrefix(end, []byte("PK\x05\x06")) && binary.LittleEndian.Uint16(end[20:]) == 0
}

// oggEnds looks for a last page that says it is the last.
func oggEnds(f io.ReaderAt, size int64, _ []byte) bool {
	const maxPage = 27 + 255 + 255*255
	end := tail(f, size, maxPage)
	i := bytes.LastIndex(end, []byte("OggS"))
	return i >= 0 && len(end)-i > 5 && end[i+5]&4 != 0
}

// boxesEnd walks the boxes of an ISO media file: the last one must end where
// the file does, and the media and what describes them must be among them.
func boxesEnd(f io.ReaderAt, size int64, _ []byte) bool {
	var described, filled bool
	const maxBoxes = 4096 // fragments have one or two each
	for at, boxes := int64(0), 0; at < size; boxes++ {
		var h [16]byte
		if n, err := f.ReadAt(h[:], at); n < 8 && err != nil || boxes == maxBoxes {
			return false
		}
		length, least := int64(binary.BigEndian.Uint32(h[:])), int64(8)
		if length == 1 {
			length, least = int64(binary.BigEndian.Uint64(h[8:])), 16
		}
		if length < least || length > size-at {
			return false
		}
		kind := string(h[4:8])
		described = described || kind == "moov" || kind == "meta"
		filled = filled || kind == "mdat"
		at += length
	}
	return described && filled
}

// matroskaEnds compares the length of the one segment with the file's. A
// segment that is being written does not know its length.
func matroskaEnds(f io.ReaderAt, size int64, head []byte) bool {
	length, n, ok := vint(head[4:])
	if !ok {
		return false
	}
	at := 4 + int64(n) + int64(length)
	var h [12]byte
	got, _ := f.ReadAt(h[:], at)
	segment, ok := bytes.CutPrefix(h[:got], []byte("\x18\x53\x80\x67"))
	if !ok {
		return false
	}
	length, n, ok = vint(segment)
	return ok && at+4+int64(n)+int64(length) == size
}

// vint reads a Matroska number; all ones is an unknown length, which is not ok.
func vint(b []byte) (value uint64, n int, ok bool) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0, false
	}
	n = 1
	for mask := byte(0x80); b[0]&mask == 0; mask >>= 1 {
		n++
	}
	if len(b) < n {
		return 0, 0, false
	}
	value = uint64(b[0]) & (1<<(8-n) - 1)
	for _, c := range b[1:n] {
		value = value<<8 | uint64(c)
	}
	if value == 1<<(7*n)-1 || value > 1<<48 {
		return 0, 0, false
	}
	return value, n, true
}
