package uploader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

// trimmedEnd looks for a mark with nothing but white space behind it.
func trimmedEnd(mark string) func(io.ReaderAt, int64, []byte) bool {
	return func(f io.ReaderAt, size int64, _ []byte) bool {
		return bytes.HasSuffix(bytes.TrimSpace(tail(f, size, 256)), []byte(mark))
	}
}

// xmlRoot finds the name of the first element.
var xmlRoot = regexp.MustCompile(`<([A-Za-z_][-A-Za-z0-9._:]*)[\s/>]`)

// xmlEnds looks for the end of the element that began first.
func xmlEnds(f io.ReaderAt, size int64, _ []byte) bool {
	head := make([]byte, 4096)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	root := xmlRoot.FindSubmatch(head[:n])
	return root != nil && trimmedEnd("</"+string(root[1])+">")(f, size, nil)
}

// jsonEnds reads a small file: it must be one value. One that holds a value a
// line has more than one as soon as it matters.
func jsonEnds(f io.ReaderAt, size int64, _ []byte) bool {
	const most = 1 << 20
	if size > most {
		return false
	}
	text := make([]byte, size)
	if n, err := f.ReadAt(text, 0); int64(n) != size || err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return json.Valid(text) && bytes.Contains(bytes.TrimSpace(text), []byte("\n"))
}

// numpyHeader is the shape and the size of an item in an .npy file's header.
var numpyHeader = regexp.MustCompile(`'descr': '[<>|=]?[a-zA-Z](\d+)'.*'shape': \(([\d, ]*)\)`)

// numpyEnds computes how long an array is.
func numpyEnds(f io.ReaderAt, size int64, head []byte) bool {
	length := int64(binary.LittleEndian.Uint16(head[8:]))
	text := make([]byte, length)
	if n, _ := f.ReadAt(text, 10); int64(n) != length {
		return false
	}
	m := numpyHeader.FindSubmatch(text)
	if m == nil {
		return false
	}
	bytesLeft, err := strconv.ParseInt(string(m[1]), 10, 32)
	if err != nil {
		return false
	}
	for _, dim := range bytes.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.ParseInt(string(dim), 10, 40)
		if err != nil || n > 0 && bytesLeft > size/n {
			return false
		}
		bytesLeft *= n
	}
	return 10+length+bytesLeft == size
}

// pixmapHeader is width, height and the largest value of a PGM or PPM file.
var pixmapHeader = regexp.MustCompile(`^P[56]\s+(\d{1,6})\s+(\d{1,6})\s+(\d{1,5})\s`)

// pixmapEnds computes how long a picture of that many channels is.
func pixmapEnds(channels int64) func(io.ReaderAt, int64, []byte) bool {
	return func(_ io.ReaderAt, size int64, head []byte) bool {
		m := pixmapHeader.FindSubmatch(head)
		if m == nil {
			return false
		}
		var w, h, most int64
		sample := int64(1) // bytes
		if _, err := fmt.Sscan(string(bytes.Join(m[1:], []byte(" "))), &w, &h, &most); err != nil {
			return false
		}
		if most > 255 {
			sample = 2
		}
		return int64(len(m[0]))+w*h*channels*sample == size
	}
}
