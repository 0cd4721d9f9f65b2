package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"mediasandbox/daemon/api"
)

const (
	againstPython = "`python3` with the same script in a chroot of the image on the bare host"
	againstChroot = "the same in a chroot of the image on the bare host"
)

// drawSource is the smallest script that agents write all day.
const drawSource = `import numpy as np
from PIL import Image, ImageDraw

ramp = np.linspace(0, 255, 320, dtype=np.uint8)
pixels = np.stack([np.tile(ramp, (180, 1))] * 3, axis=-1)
image = Image.fromarray(pixels)
pen = ImageDraw.Draw(image)
pen.ellipse((40, 30, 140, 130), fill=(200, 30, 30))
pen.rectangle((170, 50, 290, 150), outline=(255, 255, 255), width=3)
image.save("/workspace/drawn.png", compress_level=1)
`

var draw = api.NewCommand{Python: drawSource, Script: "draw.py"}

// drawBare runs the script as a user of the bare host would.
func (b *bench) drawBare() (time.Duration, error) {
	done, err := b.root.run(b.ctx, "python3", "/workspace/draw.py")
	return done.took, err
}

// loopSource allocates, computes and frees large arrays and images. It times
// itself, so that the start of Python does not count.
const loopSource = `import time

import numpy as np
from PIL import Image, ImageFilter

source = np.random.default_rng(1).integers(0, 255, (960, 1280, 3), dtype=np.uint8)

def once():
    x = source.astype(np.float32) * 1.1 - 8
    image = Image.fromarray(np.clip(x, 0, 255).astype(np.uint8))
    small = image.resize((640, 480), Image.Resampling.LANCZOS)
    return np.asarray(small.filter(ImageFilter.GaussianBlur(2))).mean()

once()
began = time.perf_counter()
for _ in range(12):
    once()
print(time.perf_counter() - began)
`

// job is one piece of media work.
type job struct {
	what  string
	argv  []string
	limit float64
	// inner finds, in what the program printed, the seconds that it took
	// itself. Without it the whole command counts, with its start.
	inner *regexp.Regexp
}

// jobs are short, so that 30 samples of each take two minutes. So the start of
// those that tell their own time is left out of it: it has a row of its own.
var jobs = []job{
	{"Pillow/numpy loop (timed by itself)", []string{"python3", "/workspace/loop.py"}, 1.00, regexp.MustCompile(`^([0-9.]+)\s*$`)},
	{"ffmpeg: decode, scale to 1440×1080, x264 (timed by itself)", []string{
		"ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-benchmark", "-y", "-i", "/workspace/hallway.avi",
		"-vf", "scale=1440:1080", "-c:v", "libx264", "-preset", "veryfast", "/workspace/out.mp4"}, 1.05,
		regexp.MustCompile(`bench: utime=\S+ stime=\S+ rtime=([0-9.]+)s`)},
	{"ImageMagick: resize of 4000×3000", []string{
		"magick", "/workspace/big.jpg", "-resize", "1600x1200", "/workspace/small.jpg"}, 1.08, nil},
}

// placeMedia puts the same files into a chat and into the chroot.
func (b *bench) placeMedia(chat string) error {
	clip, err := os.ReadFile(filepath.Join(b.media, "hallway.avi"))
	if err != nil {
		return fmt.Errorf("read the clip: %w", err)
	}
	_, err = b.root.run(b.ctx, "magick", "-size", "4000x3000", "-seed", "7", "plasma:red-blue", "-quality", "92", "/workspace/big.jpg")
	if err != nil {
		return err
	}
	big, err := os.ReadFile(filepath.Join(b.root.files, "big.jpg"))
	if err != nil {
		return fmt.Errorf("read the picture: %w", err)
	}
	for name, data := range map[string][]byte{"hallway.avi": clip, "big.jpg": big, "loop.py": []byte(loopSource)} {
		if err := b.root.write(name, data); err != nil {
			return err
		}
		if _, err := b.main.PutFile(b.ctx, chat, "/workspace/"+name, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
	}
	return nil
}

// workChat makes a chat with the media in it.
func (b *bench) workChat() (string, error) {
	chat, err := b.main.newChat(b.ctx, callTrue)
	if err != nil {
		return "", err
	}
	if err := b.placeMedia(chat); err != nil {
		return "", err
	}
	return chat, b.main.settled()
}

func (b *bench) measureWork() error {
	chat, err := b.workChat()
	if err != nil {
		return err
	}
	for _, j := range jobs {
		subject, base, err := b.compare(chat, j, b.samples)
		if err != nil {
			return err
		}
		if j.inner != nil {
			b.findings = append(b.findings, fmt.Sprintf("%s: the whole command, with its start, takes %s ms (p50) against %s ms.",
				j.what, number(subject.whole.p50()), number(base.whole.p50())))
		}
		b.add(row{
			what: j.what, unit: "ms", subject: subject.counted, against: againstChroot, base: base.counted,
			targets: []target{atMost("ratio", j.limit)},
		})
	}
	return b.main.drop(b.ctx, chat)
}

func (b *bench) measureTrim() error {
	chat, err := b.workChat()
	if err != nil {
		return err
	}
	trim := job{what: "start of ffmpeg (`-c copy` trim of a small clip)", argv: []string{
		"ffmpeg", "-nostdin", "-v", "error", "-y", "-ss", "1", "-i", "/workspace/hallway.avi", "-t", "2", "-c", "copy", "/workspace/trim.avi"}}
	subject, base, err := b.compare(chat, trim, 2*b.samples)
	if err != nil {
		return err
	}
	b.add(row{
		what: trim.what, unit: "ms", subject: subject.counted, against: againstChroot, base: base.counted, targets: []target{atMost("ratio", 2)},
	})
	return b.main.drop(b.ctx, chat)
}

// times are the samples of one side: what counts, and the whole command.
type times struct{ counted, whole sample }

func (t *times) add(j job, d done) error {
	t.whole.add(d.took)
	if j.inner == nil {
		t.counted.add(d.took)
		return nil
	}
	m := j.inner.FindStringSubmatch(d.stdout + d.stderr)
	if m == nil {
		return fmt.Errorf("%s: it did not print its time: %.200q, %.200q", j.what, d.stdout, d.stderr)
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return fmt.Errorf("%s: read its time: %w", j.what, err)
	}
	t.counted.add(time.Duration(seconds * float64(time.Second)))
	return nil
}

// compare runs a job in a chat and in the chroot by turns, after one run of
// each that does not count.
func (b *bench) compare(chat string, j job, n int) (subject, base times, err error) {
	for i := range n + 1 {
		if i%4 == 0 {
			b.tick()
		}
		ours, err := b.inSandbox(chat, j)
		if err != nil {
			return subject, base, err
		}
		theirs, err := b.root.run(b.ctx, j.argv...)
		if err != nil {
			return subject, base, err
		}
		if i == 0 {
			continue
		}
		if err := errors.Join(subject.add(j, ours), base.add(j, theirs)); err != nil {
			return subject, base, err
		}
	}
	return subject, base, nil
}

// inSandbox runs a job; only then its output is fetched.
func (b *bench) inSandbox(chat string, j job) (d done, err error) {
	var cmd api.Command
	d.took, err = timed(func() (err error) {
		cmd, err = b.main.finish(b.ctx, chat, api.NewCommand{Argv: j.argv})
		return err
	})
	if err != nil || j.inner == nil {
		return d, err
	}
	d.stdout, d.stderr, err = b.main.printed(b.ctx, cmd)
	return d, err
}
