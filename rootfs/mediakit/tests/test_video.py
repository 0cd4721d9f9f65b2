"""Known answers for the video-compositing half of mediakit. Footage is made
here; text is read back as pixels where no OCR is at hand."""

import contextlib
import hashlib
import io
import json
import subprocess
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from mediakit import MediaError, captions, graphics, video


def ffmpeg(*args):
    subprocess.run(["ffmpeg", "-y", "-loglevel", "error", *map(str, args)], check=True)


def frame(path, at):
    done = subprocess.run(["ffmpeg", "-loglevel", "error", "-ss", str(at), "-i", str(path), "-frames:v", "1", "-f", "image2pipe", "-c:v", "png", "-"], capture_output=True, check=True)
    return np.asarray(Image.open(io.BytesIO(done.stdout)).convert("RGB")).astype(int)


def beep_at(path):
    """When the sound begins, in seconds."""
    raw = subprocess.run(["ffmpeg", "-loglevel", "error", "-i", str(path), "-ac", "1", "-ar", "8000", "-f", "s16le", "-"], capture_output=True, check=True).stdout
    loud = np.flatnonzero(np.abs(np.frombuffer(raw, np.int16)) > 3000)
    return loud[0] / 8000


class Footage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp())
        cls.plain = cls.dir / "plain.mp4"
        # White from 1 s on, and a beep from 1 s on.
        ffmpeg("-f", "lavfi", "-i", "color=black:s=320x180:r=25:d=3,drawbox=c=white:t=fill:enable='gte(t,1)'", "-f", "lavfi", "-i", "aevalsrc='if(gte(t,1),0.6*sin(2*PI*440*t),0)':s=48000:d=3", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", cls.plain)
        cls.silent = cls.dir / "silent.webm"
        ffmpeg("-f", "lavfi", "-i", "testsrc2=s=161x121:r=30:d=1.5", "-c:v", "libvpx-vp9", "-b:v", "300k", cls.silent)

    def same_twice(self, make):
        sums = set()
        for i in range(2):
            out = self.dir / f"twice{i}.mp4"
            make(str(out))
            sums.add(hashlib.sha256(out.read_bytes()).hexdigest())
        self.assertEqual(len(sums), 1)
        return self.dir / "twice0.mp4"

    def test_cut_keeps_sound_in_sync(self):
        out = self.same_twice(lambda o: video.cut(str(self.plain), o, 0.6, 2.0))
        clip = video.probe(out)
        self.assertAlmostEqual(clip.duration, 1.4, delta=1 / 25)
        self.assertLess(frame(out, 0.32).mean(), 20)
        self.assertGreater(frame(out, 0.48).mean(), 230)
        self.assertAlmostEqual(beep_at(out), 0.4, delta=1 / 25)
        with self.assertRaisesRegex(MediaError, "not within its 3.00 s"):
            video.cut(str(self.plain), str(out), 5, 6)

    def test_nasties(self):
        turned = self.dir / "turned.mp4"
        ffmpeg("-display_rotation", "90", "-i", self.plain, "-c", "copy", turned)
        self.assertEqual((video.probe(turned).width, video.probe(turned).height), (180, 320))
        ten = self.dir / "ten.mp4"
        ffmpeg("-i", self.plain, "-t", 1, "-c:v", "libx265", "-x265-params", "log-level=none", "-pix_fmt", "yuv420p10le", "-ac", 1, "-ar", 8000, ten)
        alpha = self.dir / "alpha.webm"
        ffmpeg("-f", "lavfi", "-i", "color=red@0.5:s=160x120:r=25:d=1,format=yuva420p", "-c:v", "libvpx-vp9", alpha)
        for source in (turned, ten, alpha, self.silent):
            out = video.reframe(str(source), str(self.dir / "square.mp4"), "1:1")
            clip = video.probe(out)
            self.assertEqual(clip.width, clip.height, source.name)
            self.assertEqual(clip.has_sound, video.probe(source).has_sound)
            self.assertAlmostEqual(clip.duration, video.probe(source).duration, delta=0.05)
        cut_off = self.dir / "cut-off.mp4"
        cut_off.write_bytes(self.plain.read_bytes()[:900])
        (self.dir / "empty.mp4").write_bytes(b"")
        (self.dir / "text.mp4").write_text("no film")
        for name in ("cut-off.mp4", "empty.mp4", "text.mp4", "none.mp4"):
            with self.assertRaisesRegex(MediaError, f"^{name}: "):
                video.probe(self.dir / name)

    def test_picture_in_picture(self):
        out = self.same_twice(lambda o: video.picture_in_picture(str(self.plain), str(self.silent), o, "top-left", 0.4))
        clip = video.probe(out)
        self.assertAlmostEqual(clip.duration, 3, delta=1 / 25)
        self.assertGreater(frame(out, 0.5)[20:90, 20:120].std(), 30)
        self.assertLess(frame(out, 0.5)[120:, 200:].mean(), 20)
        self.assertAlmostEqual(beep_at(out), 1, delta=1 / 25)

    def test_montage_and_slideshow(self):
        out = self.same_twice(lambda o: video.montage([str(self.plain), str(self.silent)], o, each=1.4, overlap=0.4, size=(320, 180), fps=25))
        self.assertAlmostEqual(video.probe(out).duration, 2.4, delta=1 / 25)
        self.assertTrue(video.probe(out).has_sound)
        for name, colour in (("a.png", "red"), ("b.jpg", "blue")):
            Image.new("RGB", (400, 300), colour).save(self.dir / name)
        show = video.slideshow([str(self.dir / "a.png"), str(self.dir / "b.jpg")], str(self.dir / "show.mp4"), each=1, overlap=0.3, size=(160, 120), fps=25)
        self.assertAlmostEqual(video.probe(show).duration, 1.7, delta=1 / 25)
        self.assertGreater(frame(show, 0.2)[60, 80, 0], 200)
        self.assertGreater(frame(show, 1.5)[60, 80, 2], 200)

    def test_subtitles(self):
        for name, text in (("a.srt", "1\n00:00:01,200 --> 00:00:02,000\nHallo\n"), ("a.vtt", "WEBVTT\n\n00:01.200 --> 00:02.000 line:0\n<b>Hallo</b>\n")):
            (self.dir / name).write_text(text)
            self.assertEqual(captions.read(str(self.dir / name)), [captions.Cue(1.2, 2.0, "Hallo")])
            out = self.same_twice(lambda o: captions.burn(str(self.plain), str(self.dir / name), o))
            # A dark plate on white, low in the picture, only while it is due.
            self.assertGreater(frame(out, 1.1)[140:172, 100:220].mean(), 230)
            self.assertLess(frame(out, 1.6)[140:172, 155:165].mean(1).mean(1).min(), 90)
            self.assertGreater(frame(out, 2.2)[140:172, 100:220].mean(), 230)
        (self.dir / "bad.srt").write_text("1\n00:00:02,000 --> 00:00:01,000\nx\n")
        with self.assertRaisesRegex(MediaError, "ends before it begins"):
            captions.read(str(self.dir / "bad.srt"))

    def test_loudness(self):
        quiet = self.dir / "quiet.mp4"
        ffmpeg("-f", "lavfi", "-i", "color=s=64x64:r=25:d=5", "-f", "lavfi", "-i", "sine=440:d=5,volume=0.05", "-c:v", "libx264", "-c:a", "aac", quiet)
        out = video.loudness(str(quiet), str(self.dir / "loud.mp4"), -20)
        look = subprocess.run(["ffmpeg", "-i", out, "-af", "ebur128", "-f", "null", "-"], capture_output=True, text=True).stderr
        self.assertAlmostEqual(float(look.rsplit("I:", 1)[1].split("LUFS")[0]), -20, delta=1)


class Graphics(unittest.TestCase):
    def test_progress_is_told(self):
        with tempfile.TemporaryDirectory() as work:
            source, out = Path(work) / "s.mp4", Path(work) / "o.mp4"
            ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=2", "-pix_fmt", "yuv420p", source)
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                video.run(["-i", source, "-c:v", "libx264", out], seconds=2)
            reports = [json.loads(line.removeprefix("@progress ")) for line in said.getvalue().splitlines()]
            self.assertEqual(reports[-1]["by"], "ffmpeg")
            self.assertGreater(reports[-1]["percent"], 90)
            self.assertEqual(reports[-1]["frame"], 50)

    def test_lower_third_over_footage(self):
        with tempfile.TemporaryDirectory() as work:
            source, out = Path(work) / "s.mp4", Path(work) / "o.mp4"
            ffmpeg("-f", "lavfi", "-i", "color=0x3060a0:s=320x180:r=25:d=2.4", "-f", "lavfi", "-i", "sine=d=2.4", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-c:a", "aac", source)
            sums = set()
            for _ in range(2):
                graphics.over(source, out, "lower_third", at=0.4, duration=1.6, text="Ada Park", subtitle="Design")
                sums.add(hashlib.sha256(out.read_bytes()).hexdigest())
            self.assertEqual(len(sums), 1)
            clip = video.probe(out)
            self.assertEqual((clip.width, clip.height, clip.fps, clip.has_sound), (320, 180, Fraction(25), True))
            self.assertAlmostEqual(clip.duration, 2.4, delta=1 / 25)
            before, during, after = frame(out, 0.2), frame(out, 1.4), frame(out, 2.2)
            self.assertLess(np.abs(before - after).mean(), 4)
            changed = np.abs(during - before).max(2) > 40
            rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
            # Within the title-safe area, low and to the left.
            self.assertGreater(rows[0], 100)
            self.assertLess(rows[-1], 171)
            self.assertGreaterEqual(columns[0], 9)
            # The plate and the accent have the colours that were asked for.
            plate = during[rows[0] + 4, columns[-1] - 6]
            self.assertLess(np.abs(plate - [0xF4, 0xEF, 0xE6]).max(), 8)

    def test_refusals(self):
        with tempfile.TemporaryDirectory() as work:
            for given, reason in (
                ({"look": "poster", "text": "x"}, "no look 'poster'"),
                ({"look": "title", "text": " "}, "needs a text"),
                ({"look": "title", "text": "x", "colour": "red"}, "does not know colour"),
                ({"look": "title", "text": "x", "colours": {"ink": "#DDDDDD"}}, "contrast of"),
                ({"look": "caption", "text": "x", "colours": {"plate": "#FFFFFF20"}}, "contrast of"),
                ({"look": "title", "text": "x", "colours": {"ink": "red"}}, "is not like #FF5A36"),
                ({"look": "logo", "text": "x"}, "needs a file"),
            ):
                with self.assertRaisesRegex(MediaError, reason):
                    graphics.compose(folder=work, size=(320, 180), duration=1, **given)
        self.assertEqual(graphics.size_of("4:5"), (720, 900))
        self.assertAlmostEqual(graphics.contrast_ratio("#000000", "#FFFFFF"), 21, delta=0.01)


if __name__ == "__main__":
    unittest.main()
