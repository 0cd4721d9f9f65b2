package daemon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/png"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// put copies a file of testdata/media below /inputs.
func put(t *testing.T, d *daemontest.Daemon, name string) {
	t.Helper()
	f, err := os.Open(testenv.Media(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := d.PutFile(t.Context(), api.DefaultChat, "/inputs/"+name, f); err != nil {
		t.Fatal(err)
	}
}

// content reads a cell's file.
func content(t *testing.T, d *daemontest.Daemon, ordinal int) []byte {
	t.Helper()
	r, _, err := d.OpenCell(context.Background(), api.DefaultChat, ordinal)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// succeeded checks that a command ended well.
func succeeded(t *testing.T, d *daemontest.Daemon, cmd api.Command) api.Command {
	t.Helper()
	if cmd.State != api.StateSucceeded {
		_, stderr := d.Printed(cmd)
		t.Fatalf("%s: %s\n%s", cmd.State, cmd.Reason, stderr)
	}
	return cmd
}

// encode is the export of the main job, with or without the caption.
func encode(filter, out string) []string {
	return []string{
		"ffmpeg", "-v", "error", "-ss", "2", "-i", "/inputs/hallway.avi", "-vf", filter,
		"-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-threads", "1", "-movflags", "+faststart", "/outputs/" + out,
	}
}

const (
	square  = "crop='min(iw,ih)':'min(iw,ih)'"
	caption = ",drawtext=font=sans:text='Spring drop':fontsize=h/11:fontcolor=white:box=1:boxcolor=black@0.55:boxborderw=14:x=(w-tw)/2:y=h-th-h/12"
)

func TestMainJob(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "hallway.avi")
	put(t, d, "coffee.png")

	cut := succeeded(t, d, d.Finish(api.NewCommand{Argv: encode(square+caption, "spring.mp4"), Inputs: []string{"hallway.avi"}, Label: "spring"}))
	if len(cut.Cells) != 1 {
		t.Fatalf("the cut made %d cells", len(cut.Cells))
	}
	cell := cut.Cells[0]
	if cell.Ordinal != 1 || cell.Pill != api.PillVideoEdit || cell.State != api.CellPublished || cell.Label != "spring" || cell.Revision != 1 {
		t.Errorf("the cell is %+v", cell)
	}
	f := cell.File
	if f.Width != f.Height || f.Width != 576 || f.VideoCodec != "h264" || f.PixelFormat != "yuv420p" || f.ContentType != "video/mp4" {
		t.Errorf("the file is %+v", f)
	}
	if math.Abs(f.Duration-4) > 0.1 { // 6 s less 2 s, within a frame at 10 fps
		t.Errorf("it lasts %g s, want 4", f.Duration)
	}
	if !fastStart(t, content(t, d, 1)) {
		t.Error("the index is behind the media")
	}

	still := succeeded(t, d, d.Finish(api.NewCommand{
		Argv:   []string{"ffmpeg", "-v", "error", "-ss", "1", "-i", "/inputs/spring.mp4", "-frames:v", "1", "/outputs/captioned.png"},
		Inputs: []string{"#1"},
	}))
	if len(still.Cells) != 1 || still.Cells[0].Pill != api.PillFrameExtract || still.Cells[0].Ordinal != 2 {
		t.Fatalf("the still made %+v", still.Cells)
	}
	succeeded(t, d, d.Finish(api.NewCommand{Argv: encode(square, "plain.mp4")}))
	succeeded(t, d, d.Finish(api.NewCommand{Shell: "ffmpeg -v error -ss 1 -i /outputs/plain.mp4 -frames:v 1 /outputs/plain.png"}))
	checkCaption(t, content(t, d, 2), content(t, d, 4))

	photo := succeeded(t, d, d.Finish(api.NewCommand{Python: strings.Join([]string{
		"from PIL import Image, ImageEnhance",
		"ImageEnhance.Brightness(Image.open('/inputs/coffee.png').convert('RGB')).enhance(1.15).save('/outputs/coffee.jpg')",
	}, "\n")}))
	if len(photo.Cells) != 1 || photo.Cells[0].Pill != api.PillImageEdit || photo.Cells[0].File.Width != 600 || photo.Cells[0].File.ContentType != "image/jpeg" {
		t.Errorf("the photo made %+v", photo.Cells)
	}
}

// fastStart tells whether an MP4's index (moov) comes before its media (mdat).
func fastStart(t *testing.T, mp4 []byte) bool {
	t.Helper()
	for len(mp4) >= 8 {
		size, kind := int(binary.BigEndian.Uint32(mp4)), string(mp4[4:8])
		switch kind {
		case "moov":
			return true
		case "mdat":
			return false
		}
		if size < 8 || size > len(mp4) {
			break
		}
		mp4 = mp4[size:]
	}
	t.Fatal("the MP4 has neither index nor media")
	return false
}

// checkCaption compares a captioned frame with a plain one: in the caption's
// area they differ and are partly white, elsewhere they are alike.
func checkCaption(t *testing.T, captioned, plain []byte) {
	t.Helper()
	a, b := decode(t, captioned), decode(t, plain)
	if a.Bounds() != b.Bounds() {
		t.Fatalf("frames of %v and %v", a.Bounds(), b.Bounds())
	}
	area := image.Rect(576/4, 470, 576*3/4, 530)
	inside, outside, white := 0.0, 0.0, 0
	for y := range 576 {
		for x := range 576 {
			d := math.Abs(luma(a, x, y) - luma(b, x, y))
			if !image.Pt(x, y).In(area) {
				if y < 440 {
					outside += d / (576 * 440)
				}
				continue
			}
			inside += d / float64(area.Dx()*area.Dy())
			if luma(a, x, y) > 230 {
				white++
			}
		}
	}
	t.Logf("mean difference inside %.1f, outside %.2f; white pixels %d", inside, outside, white)
	if inside < 20 || outside > 3 || white < 1500 {
		t.Errorf("no caption: mean difference inside %.1f, outside %.2f; white pixels %d", inside, outside, white)
	}
}

func decode(t *testing.T, data []byte) image.Image {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func luma(img image.Image, x, y int) float64 {
	r, g, b, _ := img.At(x, y).RGBA()
	return (0.2126*float64(r) + 0.7152*float64(g) + 0.0722*float64(b)) / 257
}
