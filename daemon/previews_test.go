package daemon_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// webpSize reads the size of a lossy WebP, in pixels.
func webpSize(data []byte) (w, h int) {
	i := bytes.Index(data, []byte("\x9d\x01\x2a"))
	if i < 0 || len(data) < i+7 {
		return 0, 0
	}
	return int(binary.LittleEndian.Uint16(data[i+3:]) & 0x3fff), int(binary.LittleEndian.Uint16(data[i+5:]) & 0x3fff)
}

// TestPreviews makes cells of every kind and looks at their small pictures.
func TestPreviews(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "hallway.avi")
	put(t, d, "coffee.png")
	succeeded(t, d, d.Shell(`cd /outputs
ffmpeg -v error -i /inputs/hallway.avi -t 2 -pix_fmt yuv420p clip.mp4
magick /inputs/coffee.png -resize 1000x photo.jpg
magick -size 64x32 gradient:red-none drop.png
ffmpeg -v error -f lavfi -i 'sine=frequency=300:duration=1' tone.wav
printf '\211PNG\r\n\032\n\000\000\000\rIHDR broken' >broken.png
echo text >notes.txt`))
	want := map[string]struct {
		kinds []string
		alpha bool
		sizes map[string][2]int
	}{
		"clip.mp4":   {[]string{"thumb", "strip"}, false, map[string][2]int{"thumb": {320, 240}, "strip": {960, 90}}},
		"photo.jpg":  {[]string{"thumb"}, false, map[string][2]int{"thumb": {320, 213}}},
		"drop.png":   {[]string{"thumb"}, true, map[string][2]int{"thumb": {64, 32}}},
		"tone.wav":   {[]string{"wave"}, false, map[string][2]int{"wave": {640, 120}}},
		"broken.png": {}, "notes.txt": {},
	}
	var cells []api.Cell
	within(t, "the making of all previews", func() bool {
		var err error
		if cells, err = d.Cells(t.Context(), api.DefaultChat); err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, c := range cells {
			made += len(c.Previews)
		}
		return made == 5
	})
	for _, c := range cells {
		w := want[c.File.Name]
		if !slices.Equal(c.Previews, w.kinds) || c.File.HasAlpha != w.alpha {
			t.Errorf("%s has previews %v, alpha %t", c.File.Name, c.Previews, c.File.HasAlpha)
		}
		for _, kind := range c.Previews {
			r, _, err := d.OpenPreview(t.Context(), api.DefaultChat, c.Ordinal, kind)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			if gotW, gotH := webpSize(data); [2]int{gotW, gotH} != w.sizes[kind] {
				t.Errorf("the %s of %s is %d×%d, want %v", kind, c.File.Name, gotW, gotH, w.sizes[kind])
			}
			if dir := os.Getenv("PREVIEWS"); dir != "" { // to look at them
				if err := os.WriteFile(filepath.Join(dir, c.File.Name+"-"+kind+".webp"), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if _, _, err := d.OpenPreview(t.Context(), api.DefaultChat, 1, "wave"); code(err) != api.CodeFileNotFound {
		t.Errorf("a preview that is not there: %v", err)
	}
	if err := d.DeleteChat(t.Context(), api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	if left := glob(t, d, "previews/*/*"); len(left) > 0 {
		t.Errorf("the deleted chat left %v", left)
	}
}
