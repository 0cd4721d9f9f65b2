package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"mediasandbox/runtime/sandbox"
)

func TestFramesComeBackAsTheyWere(t *testing.T) {
	var wire bytes.Buffer
	start := Start{
		Proc: "x-1", Argv: []string{"sh", "-c", "true"}, Env: []string{"A=ü", "B="}, Dir: "/workspace", Stdin: true,
		Files: []sandbox.File{{Path: "/run/x", Data: []byte{0, 255, 10}}}, GraceMillis: 250,
	}
	files := Files{Seq: math.MaxUint64, Paths: [][]byte{[]byte("/outputs/bad\xff"), []byte("/outputs/new\nline")}}
	chunks := []Chunk{
		{Proc: "x-1", Stream: 1, Offset: 0, Data: []byte{}},
		{Proc: strings.Repeat("p", MaxID), Stream: 2, Offset: math.MaxInt64 - MaxChunk, Data: bytes.Repeat([]byte{7}, MaxChunk)},
		{Stream: 0, Offset: 5, Data: []byte("in")},
	}
	if err := errors.Join(WriteJSON(&wire, KindStart, start), WriteJSON(&wire, KindFiles, files)); err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if err := WriteChunk(&wire, KindOutput, c); err != nil {
			t.Fatal(err)
		}
	}
	next := func(want Kind) []byte {
		t.Helper()
		kind, body, err := ReadFrame(&wire)
		if err != nil || kind != want {
			t.Fatalf("kind %d, %v; want kind %d", kind, err, want)
		}
		return body
	}
	if got, err := ParseJSON[Start](next(KindStart)); err != nil || !reflect.DeepEqual(got, start) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseJSON[Files](next(KindFiles)); err != nil || !reflect.DeepEqual(got, files) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range chunks {
		if got, err := ParseChunk(next(KindOutput)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("a chunk of %d bytes came back as %d, %v", len(want.Data), len(got.Data), err)
		}
	}
	if _, _, err := ReadFrame(&wire); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last frame: %v", err)
	}
}

func TestOversizedFramesAreRefused(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteJSON(&wire, KindHint, Hint{Path: make([]byte, MaxFrame)}); err == nil || wire.Len() > 0 {
		t.Errorf("%d bytes were written, %v", wire.Len(), err)
	}
	head := binary.BigEndian.AppendUint32(nil, MaxFrame+1)
	r := io.MultiReader(bytes.NewReader(append(head, byte(KindHint))), neverRead{t})
	if _, _, err := ReadFrame(r); err == nil || !strings.Contains(err.Error(), "over the limit") {
		t.Errorf("a frame over the limit: %v", err)
	}
	// The largest one is taken.
	if err := writeFrame(&wire, KindHint, make([]byte, MaxFrame)); err != nil {
		t.Fatal(err)
	}
	if _, body, err := ReadFrame(&wire); err != nil || len(body) != MaxFrame {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// neverRead fails a test that reads the body of a frame that is too large.
type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body was read")
	return 0, io.EOF
}

func TestCutFramesAreErrors(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteChunk(&wire, KindOutput, Chunk{Proc: "x", Stream: 1, Data: []byte("data")}); err != nil {
		t.Fatal(err)
	}
	for n := range wire.Len() {
		_, _, err := ReadFrame(bytes.NewReader(wire.Bytes()[:n]))
		want := io.ErrUnexpectedEOF
		if n == 0 || n == 5 { // nothing of a header, or nothing of a body
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Errorf("%d bytes of a frame: %v, want %v", n, err, want)
		}
	}
}

func TestMalformedChunksAreRefused(t *testing.T) {
	at := func(id string, stream byte, offset uint64, data int) []byte {
		b := append([]byte{byte(len(id))}, id...)
		return append(binary.BigEndian.AppendUint64(append(b, stream), offset), make([]byte, data)...)
	}
	for name, body := range map[string][]byte{
		"empty":           {},
		"id alone":        {1, 'x'},
		"id cut off":      {9, 'x'},
		"long id":         at(strings.Repeat("x", MaxID+1), 1, 0, 0),
		"no offset":       {1, 'x', 1, 0, 0, 0},
		"negative offset": at("x", 1, 1<<63, 0),
		"too much data":   at("x", 1, 0, MaxChunk+1),
	} {
		if c, err := ParseChunk(body); err == nil {
			t.Errorf("%s: taken as %+v", name, c)
		}
	}
	if _, err := ParseJSON[Exited]([]byte(`{"proc":7}`)); err == nil {
		t.Error("a process id that is no string was taken")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 65, 'x'})
	f.Add([]byte{255, 255, 255, 255, 65})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		for {
			kind, body, err := ReadFrame(r)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := writeFrame(&again, kind, body); err != nil {
				t.Fatal(err)
			}
			from := len(wire) - r.Len() - again.Len()
			if !bytes.Equal(again.Bytes(), wire[from:len(wire)-r.Len()]) {
				t.Fatalf("frame %x came from %x", again.Bytes(), wire[from:])
			}
		}
	})
}

func FuzzParseChunk(f *testing.F) {
	f.Add([]byte{1, 'x', 1, 0, 0, 0, 0, 0, 0, 0, 7, 'd'})
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := ParseChunk(body)
		if err != nil {
			return
		}
		if len(c.Proc) > MaxID || len(c.Data) > MaxChunk || c.Offset < 0 {
			t.Fatalf("out of bounds: %+v", c)
		}
		var wire bytes.Buffer
		if err := WriteChunk(&wire, KindOutput, c); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(wire.Bytes()[5:], body) {
			t.Fatalf("%x came from %x", wire.Bytes()[5:], body)
		}
	})
}
