"""Known answers for the photo-editing half of mediakit. Run with
`python3 -m unittest`; pictures are made here or come from $MEDIA."""

import hashlib
import os
import tempfile
import unittest
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageCms, ImageDraw

from mediakit import MediaError, batch, compose, cutout, geometry, picture, tone
from mediakit.picture import from_array, open_picture, save_picture


def grid(size=(600, 800), pitch=50):
    """Black lines on white, antialiased by 4 times the size."""
    h, w = size
    image = Image.new("L", (w * 4, h * 4), 255)
    draw = ImageDraw.Draw(image)
    for x in range(0, w, pitch):
        draw.rectangle([x * 4, 0, x * 4 + 11, h * 4], fill=0)
    for y in range(0, h, pitch):
        draw.rectangle([0, y * 4, w * 4, y * 4 + 11], fill=0)
    return image


def turned_grid(degrees):
    image = grid((1000, 1200)).rotate(-degrees, resample=Image.Resampling.BICUBIC, fillcolor=255)
    image = image.resize((1200, 1000), Image.Resampling.BOX).crop((250, 250, 950, 750))
    return from_array(np.asarray(image.convert("RGB")))


def scene(height=360, width=480, soft=4.0, colours=((0.80, 0.30, 0.25), (0.95, 0.80, 0.55))):
    """A subject with a shaded colour and a soft edge, and its true alpha."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    far = np.hypot((x - width * 0.5) / 1.2, y - height * 0.52) - height * 0.3
    wave = 6 * np.sin(np.arctan2(y - height * 0.52, x - width * 0.5) * 9)
    alpha = np.clip(0.5 - (far + wave) / soft, 0, 1)
    mix = np.clip((x + y) / (width + height), 0, 1)[..., None]
    subject = np.float32(colours[0]) * (1 - mix) + np.float32(colours[1]) * mix
    return subject, alpha


def delta_e(a, b):
    """CIEDE2000 between two sRGB colours (0..1)."""
    lab = [cv2.cvtColor(np.float32([[c]]), cv2.COLOR_RGB2LAB)[0, 0].astype(float) for c in (a, b)]
    (l1, a1, b1), (l2, a2, b2) = lab
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    g = 0.5 * (1 - np.sqrt(((c1 + c2) / 2) ** 7 / (((c1 + c2) / 2) ** 7 + 25**7)))
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    dh = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0
    dl, dc, big = l2 - l1, c2 - c1, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(dh / 2))
    lm, cm = (l1 + l2) / 2, (c1 + c2) / 2
    hm = (h1 + h2) / 2 if abs(h1 - h2) <= 180 else (h1 + h2 + 360) / 2
    t = 1 - 0.17 * np.cos(np.radians(hm - 30)) + 0.24 * np.cos(np.radians(2 * hm)) + 0.32 * np.cos(np.radians(3 * hm + 6)) - 0.2 * np.cos(np.radians(4 * hm - 63))
    sl = 1 + 0.015 * (lm - 50) ** 2 / np.sqrt(20 + (lm - 50) ** 2)
    sc, sh = 1 + 0.045 * cm, 1 + 0.015 * cm * t
    rt = -2 * np.sqrt(cm**7 / (cm**7 + 25**7)) * np.sin(np.radians(60 * np.exp(-(((hm - 275) / 25) ** 2))))
    return float(np.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (big / sh) ** 2 + rt * (dc / sc) * (big / sh)))


class Geometry(unittest.TestCase):
    def test_tilt_is_found_within_a_fifth_of_a_degree(self):
        for degrees in (-11.3, -3.7, -0.6, 0.0, 0.9, 4.2, 12.5):
            found, sure = geometry.detect_tilt(turned_grid(degrees))
            self.assertAlmostEqual(found, degrees, delta=0.2)
            self.assertGreater(sure, 0.5)

    def test_straightened_grid_is_level(self):
        level = geometry.straighten(turned_grid(5.3))
        self.assertAlmostEqual(geometry.detect_tilt(level)[0], 0, delta=0.2)
        self.assertLess(level.width, 700)

    def test_nothing_to_straighten_is_refused(self):
        noise = from_array(np.random.default_rng(1).random((200, 300, 3)).astype(np.float32))
        with self.assertRaisesRegex(MediaError, "give the angle"):
            geometry.straighten(noise)

    def test_rotate_has_no_empty_corners(self):
        white = from_array(np.full((200, 300, 3), 255, np.uint8))
        self.assertGreater(geometry.rotate(white, 7).pixels.min(), 0.999)
        quarter = from_array(np.arange(6, dtype=np.uint8).reshape(2, 3))
        self.assertEqual(geometry.rotate(quarter, 90).pixels[..., 0].tolist(), np.rot90(quarter.pixels[..., 0], -1).tolist())

    def test_resize_is_right_in_linear_light(self):
        checks = np.indices((64, 64)).sum(0) % 2
        half = geometry.resize(from_array((checks * 255).astype(np.uint8)), 16, 16)
        self.assertLess(np.abs(half.pixels[4:-4, 4:-4] - 187.5 / 255).max(), 1 / 255)
        ramp = np.linspace(0, 1, 400, dtype=np.float32)[None, :, None].repeat(40, 0)
        small = geometry.resize(from_array(ramp), 100)
        want = tone.to_encoded(tone.to_linear(ramp).reshape(40, 100, 4, 1).mean(2))[::4]
        self.assertLess(np.abs(small.pixels - want)[:, 3:-3].max(), 1 / 255)

    def test_resize_does_not_bleed_through_alpha(self):
        pixels = np.zeros((40, 40, 4), np.float32)
        pixels[..., :3] = (0, 1, 0)  # what can't be seen is green
        pixels[10:30, 10:30] = (1, 0, 0, 1)
        out = geometry.resize(from_array(pixels), 20).pixels
        self.assertLess(out[out[..., 3] > 0.05][:, 1].max(), 0.02)

    def test_fits(self):
        p = from_array(np.zeros((300, 400, 3), np.uint8))
        for fit, want in (("contain", (100, 75)), ("cover", (100, 100)), ("exact", (100, 100))):
            out = geometry.resize(p, 100, 100, fit)
            self.assertEqual((out.width, out.height), want)
        wide = geometry.crop_aspect(p, "16:9")
        self.assertEqual((wide.width, wide.height), (400, 225))
        with self.assertRaisesRegex(MediaError, "does not lie within 400x300"):
            geometry.crop(p, 390, 0, 20, 20)

    def test_document(self):
        sheet = np.asarray(grid((600, 420), 60).resize((420, 600)))
        corners = np.float32([(130, 80), (520, 120), (560, 620), (90, 580)])
        matrix = cv2.getPerspectiveTransform(np.float32([(0, 0), (419, 0), (419, 599), (0, 599)]), corners)
        page = cv2.warpPerspective(np.maximum(sheet, 120), matrix, (680, 700), borderValue=30)
        p = from_array(page)
        found = geometry.detect_document(p)
        self.assertLess(np.abs(np.float32(found) - corners).max(), 4)
        flat = geometry.perspective(p, found, 420, 600)
        self.assertAlmostEqual(geometry.detect_tilt(flat)[0], 0, delta=0.3)
        with self.assertRaisesRegex(MediaError, "no sheet"):
            geometry.detect_document(from_array(np.full((100, 100), 90, np.uint8)))


class Tone(unittest.TestCase):
    def setUp(self):
        self.ramp = from_array(np.linspace(0, 1, 256, dtype=np.float32)[None, :, None].repeat(8, 0).repeat(3, 2))

    def test_black_and_white_stay(self):
        for edit in (tone.brightness(self.ramp, 40), tone.contrast(self.ramp, 60), tone.contrast(self.ramp, -60), tone.curves(self.ramp, [(0.25, 0.2), (0.75, 0.82)])):
            line = edit.pixels[0, :, 0]
            self.assertAlmostEqual(float(line[0]), 0, delta=1e-5)
            self.assertAlmostEqual(float(line[-1]), 1, delta=1e-5)
            self.assertTrue((np.diff(line) >= -1e-6).all())

    def test_values(self):
        grey = from_array(np.full((4, 4, 3), 0.5, np.float32))
        self.assertAlmostEqual(float(tone.to_linear(tone.exposure(grey, -1).pixels)[0, 0, 0]), float(tone.to_linear(np.float32(0.5))) / 2, delta=1e-5)
        self.assertAlmostEqual(float(tone.curves(grey, [(0.5, 0.6)], "red").pixels[0, 0, 0]), 0.6, delta=1e-5)
        self.assertAlmostEqual(float(tone.levels(grey, 0.25, 0.75).pixels[0, 0, 0]), 0.5, delta=1e-5)
        with self.assertRaisesRegex(MediaError, "goes from -8 to 8"):
            tone.exposure(grey, 12)

    def test_white_balance_makes_a_grey_card_grey(self):
        for cast in ((1.0, 0.82, 0.55), (0.7, 0.9, 1.0), (0.9, 1.0, 0.6)):
            rng = np.random.default_rng(2)
            pixels = tone.to_encoded(tone.to_linear(rng.random((80, 120, 3)).astype(np.float32)) * np.float32(cast))
            pixels[20:40, 30:60] = tone.to_encoded(tone.to_linear(np.float32([0.5, 0.5, 0.5])) * np.float32(cast))
            out = tone.white_balance(from_array(pixels), (30, 20, 30, 20))
            card = out.pixels[22:38, 32:58].reshape(-1, 3).mean(0)
            self.assertLess(delta_e(card, np.full(3, card.mean())), 2)

    def test_saturation(self):
        red = from_array(np.float32([[[0.7, 0.3, 0.3]]]))
        grey = tone.saturation(red, -100).pixels[0, 0]
        self.assertLess(np.ptp(grey), 0.01)
        self.assertLess(np.abs(tone.saturation(red, 0).pixels - red.pixels).max(), 2e-3)

    def test_sharpen_and_denoise(self):
        step = np.full((40, 40, 3), 0.3, np.float32)
        step[:, 20:] = 0.7
        soft = from_array(cv2.GaussianBlur(step, (0, 0), 1.5))
        slope = lambda p: float(np.diff(p.pixels[20, :, 0]).max())
        self.assertGreater(slope(tone.sharpen(soft, 150, 2)), slope(soft) * 1.2)
        noisy = from_array(np.clip(step + np.random.default_rng(3).normal(0, 0.04, step.shape), 0, 1).astype(np.float32))
        clean = tone.denoise(noisy, 60)
        self.assertLess(clean.pixels[:, :12].std(), noisy.pixels[:, :12].std() / 2)
        self.assertGreater(float(clean.pixels[:, 24:].mean() - clean.pixels[:, :16].mean()), 0.36)

    def test_report_counts_what_is_clipped(self):
        p = from_array(np.float32([[[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]]))
        found = tone.stats(p)
        self.assertEqual((found["black%"], found["white%"]), (25, 25))
        self.assertIn("before", tone.report(p, tone.exposure(p, 1)))


class Cutouts(unittest.TestCase):
    def judge(self, found, subject, truth, mae=0.02):
        keep = found.alpha > 0.5
        iou = (keep & (truth > 0.5)).sum() / (keep | (truth > 0.5)).sum()
        self.assertGreaterEqual(iou, 0.98)
        self.assertLessEqual(float(np.abs(found.alpha - truth).mean()), mae)
        edge = (truth > 0.2) & (truth < 0.95)
        # The edges show the subject's colour, not the background's.
        self.assertLess(float(np.abs(found.picture.pixels[..., :3] - subject)[edge].mean()), 0.06)

    def test_green_screen(self):
        subject, truth = scene()
        for key in ((0.15, 0.75, 0.25), (0.10, 0.25, 0.85)):
            rng = np.random.default_rng(4)
            back = np.float32(key) * (1 + 0.06 * (np.mgrid[0:360, 0:480][1] / 480 - 0.5))[..., None]
            shot = subject * truth[..., None] + back * (1 - truth[..., None]) + rng.normal(0, 0.008, (360, 480, 3))
            found = cutout.chroma_key(from_array(np.clip(shot, 0, 1).astype(np.float32)))
            self.judge(found, subject, truth)
            self.assertGreater(found.confidence, 0.7)

    def test_plain_background_with_a_gradient(self):
        subject, truth = scene(soft=6)
        y, x = np.mgrid[0:360, 0:480]
        back = (0.93 - 0.12 * (y / 360) + 0.05 * (x / 480))[..., None] * np.float32([1, 1, 0.98])
        shot = subject * truth[..., None] + back * (1 - truth[..., None])
        self.judge(cutout.plain_background(from_array(shot.astype(np.float32))), subject, truth)

    def test_grabcut_on_a_busy_background(self):
        subject, truth = scene(soft=3)
        rng = np.random.default_rng(5)
        back = cv2.GaussianBlur(rng.random((360, 480, 3)).astype(np.float32), (0, 0), 3)
        back = np.clip((back - 0.5) * 2 * np.float32([0.3, 0.6, 0.9]) + np.float32([0.15, 0.4, 0.5]), 0, 1)
        shot = subject * truth[..., None] + back * (1 - truth[..., None])
        ys, xs = np.where(truth > 0.5)
        box = (int(xs.min()) - 8, int(ys.min()) - 8, int(np.ptp(xs)) + 16, int(np.ptp(ys)) + 16)
        found = cutout.grabcut(from_array(shot.astype(np.float32)), box)
        self.judge(found, subject, truth)
        again = cutout.grabcut(from_array(shot.astype(np.float32)), box)
        self.assertTrue((found.picture.pixels == again.picture.pixels).all())

    def test_unsuited_pictures_are_refused(self):
        busy = from_array(np.random.default_rng(6).random((120, 160, 3)).astype(np.float32))
        flat = from_array(np.full((120, 160, 3), 0.5, np.float32))
        for edit, reason in (
            (lambda: cutout.plain_background(busy), "not plain"),
            (lambda: cutout.plain_background(flat), "too alike"),
            (lambda: cutout.chroma_key(flat), "not a green or blue screen"),
            (lambda: cutout.grabcut(flat, (0, 0, 160, 120)), "covers everything"),
            (lambda: cutout.grabcut(flat, (100, 100, 100, 100)), "does not lie within"),
        ):
            with self.assertRaisesRegex(MediaError, reason):
                edit()


class Compose(unittest.TestCase):
    def test_modes(self):
        b, s = 0.4, 0.7
        want = {"normal": 0.7, "multiply": 0.28, "screen": 0.82, "overlay": 0.56, "hard-light": 0.64, "darken": 0.4, "lighten": 0.7, "add": 1.0, "subtract": 0, "difference": 0.3, "soft-light": 0.4 + 0.4 * (0.4**0.5 - 0.4)}
        for mode in compose.MODES:
            out = compose.place(compose.canvas(2, 2, (b, b, b)), compose.canvas(2, 2, (s, s, s)), mode=mode)
            self.assertAlmostEqual(float(out.pixels[0, 0, 0]), want[mode], delta=1e-5, msg=mode)

    def test_over(self):
        out = compose.place(compose.canvas(4, 4, (0, 0, 0)), compose.canvas(2, 2, (1, 1, 1, 0.5)), 3, 3)
        self.assertEqual(float(out.pixels[3, 3, 0]), 0.5)
        self.assertEqual(float(out.pixels[2, 2, 0]), 0)
        with self.assertRaisesRegex(MediaError, "wholly outside"):
            compose.place(out, out, 9, 9)

    def test_shadows_lie_below(self):
        pixels = np.zeros((100, 100, 4), np.float32)
        pixels[30:60, 30:70] = 1
        p = from_array(pixels)
        self.assertGreater(compose.shadow(p).alpha[65, 50], 0.1)
        self.assertEqual(float(compose.contact_shadow(p).alpha[40, 5]), 0)
        out = compose.on_colour(p, (1, 1, 1))
        self.assertLess(out.pixels[61, 50, 0], 0.8)
        self.assertEqual(out.pixels.shape, (100, 100, 3))


class Files(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp())
        y, x = np.mgrid[0:48, 0:64]
        self.pixels = np.stack([x * 4, y * 5, (x + y) * 2], axis=2).astype(np.uint8)
        self.image = Image.fromarray(self.pixels)
        self.srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()

    def near(self, a, b, most=0.03):
        self.assertEqual(a.shape, b.shape)
        self.assertLess(float(np.abs(a - b).mean()), most)

    def test_orientation(self):
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            stored = {1: lambda p: p, 2: lambda p: p[:, ::-1], 3: lambda p: p[::-1, ::-1], 4: lambda p: p[::-1], 5: lambda p: p.swapaxes(0, 1), 6: lambda p: np.rot90(p, 1), 7: lambda p: p[::-1, ::-1].swapaxes(0, 1), 8: lambda p: np.rot90(p, 3)}[orientation](self.pixels)
            path = self.dir / f"o{orientation}.jpg"
            Image.fromarray(np.ascontiguousarray(stored)).save(path, quality=98, subsampling=0, exif=exif)
            p = open_picture(path)
            self.near(p.pixels, self.pixels / 255)
            again = save_picture(p, self.dir / "again.jpg")
            with Image.open(again) as stored:
                self.assertEqual(stored.getexif()[0x0112], 1)
            self.near(open_picture(again).pixels, self.pixels / 255)

    def test_sixteen_bits_profile_and_resolution_stay(self):
        deep = (np.mgrid[0:40, 0:200][1] * 327 + 11).astype(np.uint16)
        p = from_array(np.stack([deep, deep[::-1], deep // 2], axis=2))
        p = picture.dataclasses.replace(p, icc=self.srgb, dpi=(300.0, 300.0))
        for name in ("a.png", "a.tif"):
            path = save_picture(p, self.dir / name)
            back = open_picture(path)
            self.assertEqual(back.depth, 16)
            self.assertTrue((np.rint(back.pixels * 65535) == np.rint(p.pixels * 65535)).all())
            self.assertEqual(back.icc, self.srgb)
            self.assertAlmostEqual(back.dpi[0], 300, delta=0.1)

    def test_modes(self):
        cases = {"cmyk.jpg": self.image.convert("CMYK"), "grey.png": self.image.convert("L"), "palette.gif": self.image.convert("P"), "bits.png": self.image.convert("1")}
        for name, image in cases.items():
            image.save(self.dir / name)
            p = open_picture(self.dir / name)
            self.assertEqual((p.width, p.height), (64, 48), name)
        clear = self.image.convert("P")
        clear.info["transparency"] = 0
        clear.save(self.dir / "clear.png", transparency=0)
        self.assertIsNotNone(open_picture(self.dir / "clear.png").alpha)
        self.near(open_picture(self.dir / "cmyk.jpg").pixels, self.pixels / 255, 0.05)

    def test_animations_and_pages(self):
        frames = [self.image, self.image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), self.image.convert("L").convert("RGB")]
        for name in ("a.gif", "a.webp", "a.tif"):
            frames[0].save(self.dir / name, save_all=True, append_images=frames[1:])
            self.assertEqual(picture.pages(self.dir / name), 3, name)
            self.near(open_picture(self.dir / name, 1).rgb().colour, self.pixels[:, ::-1] / 255, 0.08)
            with self.assertRaisesRegex(MediaError, "no page 3; it has 3"):
                open_picture(self.dir / name, 3)

    def test_modern_formats(self):
        p = from_array(self.pixels)
        for name in ("a.avif", "a.heic", "a.jxl", "a.webp"):
            self.near(open_picture(save_picture(p, self.dir / name, 95)).rgb().colour, self.pixels / 255, 0.03)
        (self.dir / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"><rect width="20" height="10" fill="#ff0000"/></svg>')
        self.assertEqual(open_picture(self.dir / "a.svg").rgb().colour[5, 5].tolist(), [1, 0, 0])
        self.image.save(self.dir / "a.pdf")
        self.assertGreater(open_picture(self.dir / "a.pdf").width, 64)

    def test_bad_files_have_one_clear_error(self):
        self.image.save(self.dir / "whole.jpg")
        self.image.save(self.dir / "whole.png")
        for kind in ("jpg", "png"):
            data = (self.dir / f"whole.{kind}").read_bytes()
            (self.dir / f"cut.{kind}").write_bytes(data[: len(data) // 2])
        (self.dir / "empty.jpg").write_bytes(b"")
        (self.dir / "text.jpg").write_text("not a picture")
        for name, reason in {"cut.jpg": "cut off", "cut.png": "cut off", "empty.jpg": "empty", "text.jpg": "not a picture", "none.jpg": "no such file"}.items():
            with self.assertRaisesRegex(MediaError, f"^{name}: .*{reason}"):
                open_picture(self.dir / name)
        done = batch.each([self.dir / "cut.jpg", self.dir / "whole.png"], lambda p: tone.brightness(p, 10), self.dir, ".webp")
        self.assertEqual([bool(o.output) for o in done], [False, True])

    def test_the_same_bytes(self):
        p = tone.contrast(from_array(self.pixels), 20)
        for name in ("a.jpg", "a.png", "a.webp", "a.avif", "a.heic", "a.jxl", "a.tif"):
            digests = {hashlib.sha256(save_picture(p, self.dir / f"{i}{name}").read_bytes()).hexdigest() for i in range(2)}
            self.assertEqual(len(digests), 1, name)

    def test_corpus(self):
        media = os.environ.get("MEDIA")
        self.assertTrue(media, "set MEDIA to a folder with pictures")
        for path in sorted(Path(media).iterdir()):
            if path.suffix in (".png", ".jpg", ".tif"):
                p = open_picture(path)
                out = geometry.resize(tone.contrast(tone.brightness(p, 10), 10), 320)
                self.assertEqual(max(out.width, 320), 320)


if __name__ == "__main__":
    unittest.main()
