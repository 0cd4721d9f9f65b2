"""Renders every example of the two built-in skills into /workspace/gallery and
lays them out on one sheet, /outputs/gallery.png. `make gallery` runs it in a
sandbox without a network."""

import subprocess
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mediakit import captions, compose, cutout, geometry, graphics, picture, tone, video

WORK = Path("/workspace/gallery")
WORK.mkdir(exist_ok=True)
HALL, COFFEE, ROCKET = "/inputs/hallway.avi", "/inputs/coffee.png", "/inputs/rocket.jpg"


def still(clip: Path, at: float) -> Image.Image:
    out = WORK / f"{clip.stem}.png"
    subprocess.run(["ffmpeg", "-y", "-v", "error", "-ss", str(at), "-i", str(clip), "-frames:v", "1", str(out)], check=True)
    return Image.open(out).convert("RGB")


def videos() -> list[tuple[str, str, Image.Image]]:
    done = []

    def add(name: str, note: str, clip: Path, at: float) -> None:
        done.append((name, note, still(clip, at)))

    talk = WORK / "talk.mp4"
    video.slideshow([COFFEE], str(talk), each=3, overlap=0.5)
    add("Title", "graphics.render('title')", graphics.render("title", WORK / "title.mp4", duration=2.5, text="Spring drop", eyebrow="New collection", subtitle="Linen, light and long evenings. In stores from 3 May."), 2.2)
    add("Lower third", "graphics.over(clip, …, 'lower_third')", graphics.over(talk, WORK / "lower.mp4", "lower_third", at=0.3, duration=2.4, text="Ada Park", subtitle="Roaster, Kontor Kaffee"), 1.8)
    reel = Path(video.reframe(str(talk), str(WORK / "reel.mp4"), "9:16"))
    add("Caption, 9:16", "graphics.over(clip, …, 'caption')", graphics.over(reel, WORK / "caption.mp4", "caption", at=0.2, duration=2, text="春の新作が届きました 🌸"), 1.2)
    add("Kinetic type, 4:5", "graphics.render('kinetic')", graphics.render("kinetic", WORK / "kinetic.mp4", aspect="4:5", duration=2.6, text="Made slowly. Worn for years.", strong=["years"]), 2.4)
    mark = WORK / "mark.svg"
    mark.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100" width="400" height="400"><g fill="none" stroke="#14171F" stroke-width="9" stroke-linecap="round"><path d="M18 70c12-34 26-44 32-44s20 10 32 44"/><path d="M33 74c6-18 12-25 17-25s11 7 17 25"/></g><circle cx="50" cy="80" r="5.5" fill="#14171F"/></svg>')
    add("Animated logo, 1:1", "graphics.render('logo')", graphics.render("logo", WORK / "logo.mp4", aspect="1:1", duration=2.2, file=str(mark), text="Arch & Ember", subtitle="Ceramics since 1998"), 2.0)
    add("Picture in picture", "video.picture_in_picture()", video.picture_in_picture(str(talk), HALL, str(WORK / "pip.mp4"), "bottom-right", 0.3), 1.5)
    (WORK / "s.srt").write_text("1\n00:00:00,200 --> 00:00:02,800\nFirst the bloom: thirty seconds,\nand nothing else.\n")
    add("Subtitles from SRT", "captions.burn()", captions.burn(str(talk), str(WORK / "s.srt"), str(WORK / "subtitles.mp4")), 1.5)
    add("Montage", "video.montage()", video.montage([str(talk), str(WORK / "title.mp4")], str(WORK / "montage.mp4"), each=1.6, overlap=0.6, transition="smoothleft"), 1.3)
    add("Slideshow", "video.slideshow()", video.slideshow([ROCKET, COFFEE], str(WORK / "slides.mp4"), each=1.6, overlap=0.6), 0.4)
    return done


def photos() -> list[tuple[str, str, Image.Image]]:
    coffee, rocket = picture.open_picture(COFFEE), picture.open_picture(ROCKET)
    dim = tone.exposure(coffee, -1.2)
    better = tone.contrast(tone.exposure(dim, 1.3), 18)
    leaning = geometry.rotate(rocket, 6)
    thing, alpha = _mug()
    studio = compose.place(compose.canvas(thing.width, thing.height, (0.87, 0.86, 0.84)), thing)
    cut = cutout.plain_background(studio).picture
    on_orange = compose.on_colour(cut, (1.0, 0.77, 0.24), margin=0.04)
    return [
        ("Exposure and contrast", "tone.exposure(), tone.contrast()", _halves(dim, better)),
        ("Straightened", "geometry.rotate(), straighten()", _halves(leaning, geometry.straighten(leaning, 6))),
        ("Cut out, with a shadow", "cutout.plain_background()", _halves(studio, on_orange)),
    ]


def _mug():
    """A made-up mug, for a picture whose true outline is known."""
    import numpy as np

    big = Image.new("L", (2400, 1800))
    d = ImageDraw.Draw(big)
    d.rounded_rectangle([760, 520, 1480, 1480], 120, fill=255)
    d.ellipse([760, 440, 1480, 640], fill=255)
    d.ellipse([1340, 700, 1800, 1220], fill=255)
    d.ellipse([1430, 800, 1690, 1120], fill=0)
    alpha = np.asarray(big.resize((800, 600), Image.Resampling.LANCZOS), np.float32) / 255
    y, x = np.mgrid[0:600, 0:800].astype(np.float32)
    light = np.clip(1.06 - np.abs((x - 330) / 300) ** 1.6 * 0.42, 0.3, 1.1)[..., None]
    rgb = np.float32([0.13, 0.32, 0.42]) * light + 0.05 * np.exp(-(((x - 300) / 26) ** 2))[..., None]
    return picture.from_array(np.concatenate([np.clip(rgb, 0, 1), alpha[..., None]], axis=2).astype(np.float32)), alpha


def _halves(before, after) -> Image.Image:
    """Before on the left, after on the right, with a gap between."""
    sides = [picture.to_pillow(geometry.resize(picture.flatten(p), 626, 720, "cover")) for p in (before, after)]
    out = Image.new("RGB", (1280, 720), "#FFFFFF")
    out.paste(sides[0], (0, 0))
    out.paste(sides[1], (654, 0))
    return out


def sheet(items: list[tuple[str, str, Image.Image]]) -> Image.Image:
    """A contact sheet: four columns, each picture whole on a card of one size."""
    columns, width, gap, side = 4, 560, 48, 96
    height = width * 9 // 16
    rows = -(-len(items) // columns)
    font = lambda name, size: ImageFont.truetype(f"/usr/share/fonts/opentype/inter/{name}.otf", size)
    head, text = font("InterDisplay-Black", 76), font("Inter-Medium", 24)
    name_font, note_font = font("Inter-SemiBold", 25), ImageFont.truetype("/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf", 17)
    top, label = 300, 96
    total = (2 * side + columns * width + (columns - 1) * gap, top + rows * (height + label) + (rows - 1) * 28 + side)
    out = Image.new("RGB", total, "#FFFFFF")
    d = ImageDraw.Draw(out)
    d.rectangle([side, 98, side + 96, 107], fill="#FF5A36")
    d.text((side - 3, 122), "What the darkroom makes", font=head, fill="#14171F")
    d.text((side, 222), "Every example of the two built-in skills, rendered in a sandbox without a network.", font=text, fill="#5A5C63")
    for i, (name, note, image) in enumerate(items):
        x = side + (i % columns) * (width + gap)
        y = top + (i // columns) * (height + label + 28)
        card = Image.new("RGB", (width * 2, height * 2), "#DDD6C9")
        scale = min(card.width / image.width, card.height / image.height)
        shown = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
        card.paste(shown, ((card.width - shown.width) // 2, (card.height - shown.height) // 2))
        out.paste(card.resize((width, height), Image.Resampling.LANCZOS), (x, y))
        d.text((x, y + height + 18), name, font=name_font, fill="#14171F")
        d.text((x, y + height + 54), note, font=note_font, fill="#7A7A78")
    return out


if __name__ == "__main__":
    page = sheet(videos() + photos())
    page.resize((1840, round(page.height * 1840 / page.width)), Image.Resampling.LANCZOS).save("/outputs/gallery.png", optimize=True)
