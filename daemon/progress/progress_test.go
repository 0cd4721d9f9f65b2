package progress_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/progress"
)

// banner is what ffmpeg says of an input of ten seconds.
const banner = "ffmpeg version 7.1.1 Copyright (c) 2000-2025\nInput #0, mov,mp4, from 'a.mp4':\n  Duration: 00:00:10.00, start: 0.000000, bitrate: 1 kb/s\n"

func TestFFmpegStatistics(t *testing.T) {
	const half = "frame=  150 fps= 75 q=28.0 size=     256KiB time=00:00:05.00 bitrate= 419.4kbits/s speed=2.5x    \r"
	for name, c := range map[string]struct {
		words   []string
		percent float64 // -1: not known
		eta     float64
	}{
		"whole":                    {[]string{"ffmpeg", "-i", "a.mp4", "b.mp4"}, 50, 2},
		"-t":                       {[]string{"ffmpeg", "-i", "a.mp4", "-t", "5", "b.mp4"}, 100, 0},
		"-t of more than there is": {[]string{"ffmpeg", "-i", "a.mp4", "-t", "50", "b.mp4"}, 50, 2},
		"-ss":                      {[]string{"ffmpeg", "-ss", "00:00:02", "-i", "a.mp4", "b.mp4"}, 62.5, 1.2},
		"-ss -to of the input":     {[]string{"ffmpeg", "-ss", "1", "-to", "9", "-i", "a.mp4", "b.mp4"}, 62.5, 1.2},
		"-to of the result":        {[]string{"ffmpeg", "-ss", "1", "-i", "a.mp4", "-to", "8", "b.mp4"}, 62.5, 1.2},
		"shell line":               {[]string{"ffmpeg -v info -i 'a.mp4' -t '5' b.mp4"}, 100, 0},
		"python list":              {[]string{`subprocess.run(["ffmpeg","-i","a.mp4","-t","8","b.mp4"])`}, 62.5, 1.2},
		"slow motion":              {[]string{"ffmpeg", "-i", "a.mp4", "-vf", "setpts=2*PTS", "b.mp4"}, -1, 0},
		"a variable":               {[]string{"ffmpeg -i a.mp4 -t $LENGTH b.mp4"}, -1, 0},
		"two with limits":          {[]string{"ffmpeg -i a -t 1 b; ffmpeg -i c -t 2 d"}, -1, 0},
		"two without":              {[]string{"ffmpeg -i a b; ffmpeg -i c d"}, 50, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := progress.New(c.words)
			if r.Write("stderr", 0, []byte(banner)) {
				t.Error("the banner is taken for progress")
			}
			if !r.Write("stderr", int64(len(banner)), []byte(half)) {
				t.Fatal("the statistics are not seen")
			}
			p, _ := r.Last()
			if p.By != api.ProgressByFFmpeg || p.Frame != 150 || p.FPS != 75 || p.Speed != 2.5 || p.Time != 5 {
				t.Errorf("it read %+v", p)
			}
			if c.percent < 0 {
				if p.Percent != nil || p.ETA != nil {
					t.Errorf("%v %% is claimed of a result whose length is not known", *p.Percent)
				}
				return
			}
			if p.Percent == nil || math.Abs(*p.Percent-c.percent) > 0.01 || p.ETA == nil || math.Abs(*p.ETA-c.eta) > 0.01 {
				t.Errorf("it read %v %%, %v s left; want %v and %v", value(p.Percent), value(p.ETA), c.percent, c.eta)
			}
		})
	}
}

func value(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

// TestChunks gives the same text in pieces of every size, and each piece twice
// as a reconnected guest may.
func TestChunks(t *testing.T) {
	text := banner + "frame=1\nfps=25.0\nout_time=00:00:02.500000\nspeed=N/A\nprogress=continue\nfps=30\nout_time=00:00:07.5\nspeed=1.5x\nprogress=end\n"
	for size := 1; size <= len(text); size++ {
		r := progress.New([]string{"ffmpeg", "-i", "a", "b"})
		told := 0
		for at := 0; at < len(text); at += size {
			piece := []byte(text[at:min(at+size, len(text))])
			for range 2 {
				if r.Write("stdout", int64(at), piece) {
					told++
				}
			}
		}
		p, ok := r.Last()
		if !ok || p.Percent == nil || *p.Percent != 75 || p.Frame != 0 || told == 0 || told > 2 {
			t.Fatalf("in pieces of %d bytes it read %+v, %d times", size, p, told)
		}
	}
}

func TestReports(t *testing.T) {
	for line, want := range map[string]api.CommandProgress{
		`@hf-progress {"stage":"capture","pct":42}`:                                          {By: api.ProgressByHyperFrames, Stage: "capture"},
		`@progress {"percent":42,"frame":12,"fps":24,"speed":0.5,"eta":3,"stage":"x\u0007"}`: {By: api.ProgressByScript, Frame: 12, FPS: 24, Speed: 0.5, Stage: "x"},
		`@progress {"by":"ffmpeg","percent":42}`:                                             {By: api.ProgressByFFmpeg},
	} {
		r := progress.New(nil)
		if !r.Write("stdout", 0, []byte(line+"\n")) {
			t.Errorf("%s: it is not seen", line)
			continue
		}
		p, _ := r.Last()
		if p.Percent == nil || *p.Percent != 42 {
			t.Errorf("%s: it read %v %%", line, value(p.Percent))
		}
		p.Percent, p.ETA = nil, nil
		if p != want {
			t.Errorf("%s: it read %+v", line, p)
		}
	}
}

// TestHostile gives what no honest program prints.
func TestHostile(t *testing.T) {
	for _, text := range []string{
		"@progress {\n", "@progress []\n", "@progress {\"percent\": \"x\"}\n", "frame=1 time=N/A\n", "time=1\n", "progress=end\n",
		"out_time=99:99:99:99\nprogress=end\n", strings.Repeat("x", 1<<20) + "\n", strings.Repeat("a=", 1<<16) + "\n", "frame= " + strings.Repeat("k=v ", 1<<16) + "\n",
	} {
		r := progress.New([]string{"-t", "-ss", "-to"})
		if r.Write("stderr", 0, []byte(text)) {
			t.Errorf("%.40q is taken for progress", text)
		}
	}
	r := progress.New(nil)
	r.Write("stderr", 0, []byte(`@progress {"percent": 1e300, "frame": 1e300, "fps": -1, "speed": -5, "eta": -7}`+"\n"))
	if p, ok := r.Last(); !ok || *p.Percent != 100 || p.Frame != 0 || p.FPS != 0 || p.Speed != 0 || *p.ETA != 0 {
		t.Errorf("it believes %+v", p)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("ffmpeg -i a -t 5 b", banner+"frame=1 time=00:00:01.0 speed=1x\r", 7)
	f.Add("", `@progress {"percent":1}`+"\n", 3)
	f.Fuzz(func(t *testing.T, words, text string, size int) {
		r := progress.New([]string{words})
		size = min(max(size, 1), 1<<16)
		for at := 0; at < len(text); at += size {
			r.Write("stderr", int64(at), []byte(text[at:min(at+size, len(text))]))
		}
		p, ok := r.Last()
		if ok && p.Percent != nil && !(*p.Percent >= 0 && *p.Percent <= 100) {
			t.Error(fmt.Sprintf("%v %%", *p.Percent))
		}
	})
}
