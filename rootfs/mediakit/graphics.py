"""Titles, captions, lower thirds, kinetic type and logos, drawn by HyperFrames.

    graphics.render("title", "/outputs/title.mp4", text="Spring drop", eyebrow="New", subtitle="From 3 May")
    graphics.over("/inputs/talk.mp4", "/outputs/talk.mp4", "lower_third", at=1, text="Ada Park", subtitle="Head of design")

A look fills its text in, makes it fit (long words, right-to-left, Chinese,
Japanese, Korean, emoji), keeps it within the safe area of the aspect, and
checks that it can be read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from . import video
from .errors import MediaError

LOOKS = {
    "title": "text, eyebrow, subtitle; fills the picture",
    "lower_third": "text (a name), subtitle (a role); over footage",
    "caption": "text; over footage",
    "kinetic": "text, strong (words to stress); fills the picture",
    "logo": "file (SVG or PNG), text, subtitle; fills the picture",
}
_OVER = {"lower_third", "caption"}
_SIZES = {"16:9": (16, 9), "9:16": (9, 16), "1:1": (1, 1), "4:5": (4, 5)}
_HERE = Path(__file__).parent / "looks"
_ANIME = Path("/usr/lib/media-node/node_modules/animejs/dist/bundles/anime.umd.min.js")

# The default colours; any of them can be given.
COLOURS = {"paper": "#F4EFE6", "ink": "#14171F", "accent": "#FF5A36", "second": "#FFC53D", "strong": "#E23A12", "plate": "#101218E0", "ontop": "#FFFFFF"}


def size_of(aspect: str, short: int = 720) -> tuple[int, int]:
    """Width and height for 16:9, 9:16, 1:1 or 4:5 with a short side in pixels."""
    if aspect not in _SIZES:
        raise MediaError(f"aspect {aspect!r} is not one of {', '.join(_SIZES)}")
    a, b = _SIZES[aspect]
    return (video.even(short * max(1, a / b)), video.even(short * max(1, b / a)))


def _channels(colour: str) -> tuple[float, float, float, float]:
    m = re.fullmatch(r"#([0-9a-fA-F]{6})([0-9a-fA-F]{2})?", colour)
    if not m:
        raise MediaError(f"colour {colour!r} is not like #FF5A36 (or #FF5A36CC with alpha)")
    value = [int(m[1][i : i + 2], 16) / 255 for i in (0, 2, 4)]
    return (*value, int(m[2], 16) / 255 if m[2] else 1.0)


def contrast_ratio(ink: str, ground: str, behind: str = "#FFFFFF") -> float:
    """WCAG's contrast of a colour on another, 1 to 21. Where the ground lets
    footage through, behind is the worst that may lie there."""
    def light(rgb) -> float:
        return sum(w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip((0.2126, 0.7152, 0.0722), rgb))

    *g, a = _channels(ground)
    g = [x * a + y * (1 - a) for x, y in zip(g, _channels(behind))]
    bright, dark = sorted((light(_channels(ink)), light(g)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _check_colours(look: str, colours: dict[str, str], strong: bool) -> None:
    pairs = [("ontop", "plate", 4.5)] if look == "caption" else [("ink", "paper", 4.5)]
    if strong:
        pairs.append(("strong", "paper", 3.0))  # large type
    for ink, ground, least in pairs:
        ratio = min(contrast_ratio(colours[ink], colours[ground], behind) for behind in ("#FFFFFF", "#000000"))
        if ratio < least:
            raise MediaError(f"{ink} {colours[ink]} on {ground} {colours[ground]} has a contrast of {ratio:.1f}, it needs {least}; choose a darker or lighter one")


def compose(look: str, folder: str | os.PathLike, size: tuple[int, int], duration: float, **given) -> Path:
    """Write a look as a HyperFrames project into folder, to look at or to
    change before it is rendered."""
    if look not in LOOKS:
        raise MediaError(f"there is no look {look!r}; there are {', '.join(LOOKS)}")
    if not 0.5 <= duration <= 60:
        raise MediaError(f"duration is {duration:g} s; a graphic has 0.5 to 60")
    colours = COLOURS | given.pop("colours", {})
    unknown = colours.keys() - COLOURS.keys()
    if unknown:
        raise MediaError(f"there is no colour {', '.join(sorted(unknown))}; there are {', '.join(COLOURS)}")
    values = {"text": given.pop("text", ""), "eyebrow": given.pop("eyebrow", ""), "subtitle": given.pop("subtitle", ""), "strong": list(given.pop("strong", []))}
    file = given.pop("file", None)
    if given:
        raise MediaError(f"{look} does not know {', '.join(given)}; it takes {LOOKS[look]}")
    if look != "logo" and not values["text"].strip():
        raise MediaError(f"{look} needs a text")
    _check_colours(look, colours, bool(values["strong"]))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = ""
    if look == "logo":
        if not file or not Path(file).is_file():
            raise MediaError("logo needs a file, an SVG or PNG")
        name = "logo" + Path(file).suffix.lower()
        shutil.copyfile(file, folder / name)
    shutil.copyfile(_ANIME, folder / "anime.js")
    page = (_HERE / f"{look}.html").read_text()
    part = {tag: re.search(rf"<{tag}>\n(.*?)</{tag}>", page, re.S)[1] for tag in ("style", "template", "script")}
    fields = {"duration": f"{duration:g}", "file": name}
    parameters = json.dumps(values | {"width": size[0], "height": size[1], "duration": duration, "colours": colours}).replace("<", "\\u003c")
    (folder / "index.html").write_text(
        f"""<!doctype html><html><head><meta charset="utf-8"><style>
{(_HERE / "stage.css").read_text()}#stage {{ width: {size[0]}px; height: {size[1]}px }}
{part["style"]}</style></head><body>
<div id="stage" data-composition-id="stage" data-start="0" data-duration="{duration:g}" data-width="{size[0]}" data-height="{size[1]}">
{string.Template(part["template"]).substitute(fields)}</div>
<script type="application/json" id="parameters">{parameters}</script>
<script src="anime.js"></script>
<script>
{(_HERE / "stage.js").read_text()}
{part["script"]}show("stage");
</script></body></html>
""",
        encoding="utf-8",
    )
    return folder


def render(look: str, output: str | os.PathLike, aspect: str = "16:9", short: int = 720, fps: int | Fraction = 30, duration: float = 4, size: tuple[int, int] | None = None, **given) -> Path:
    """Render a look. An output that ends in .mov keeps alpha, without loss, for
    video.overlay; .mp4 fills what is empty with black."""
    output = Path(output)
    with tempfile.TemporaryDirectory(prefix="look-", dir="/tmp") as work:
        folder = compose(look, Path(work) / "project", size or size_of(aspect, short), duration, **given)
        if output.suffix.lower() == ".mov":
            hyperframes(folder, Path(work) / "frames", fps)
            # As RGB: through YUV colours would depend on who converts them.
            video.run(["-framerate", fps, "-i", Path(work) / "frames" / "frame_%06d.png", "-c:v", "png", "-pix_fmt", "rgba", *video.EXACT, output])
        else:
            made = Path(work) / "graphic.mp4"
            hyperframes(folder, made, fps)
            video.run(["-i", made, "-map", "0:v:0", "-c", "copy", *video.EXACT, output])
    return output


def hyperframes(folder: Path, output: Path, fps: int | Fraction = 30) -> None:
    """Render a HyperFrames project, with its progress passed on: .mp4, .webm, or
    a folder of PNG frames with alpha for a name without an ending."""
    argv = ["hyperframes", "render", str(folder), "-o", str(output), "-f", str(fps), "-w", "1", "--no-browser-gpu", "-q", "high"]
    argv += ["--format", {".webm": "webm", "": "png-sequence"}.get(output.suffix, "mp4")]
    tail: list[str] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        last = -1
        for text in process.stdout:
            if text.startswith("@hf-progress "):
                said = json.loads(text[len("@hf-progress ") :])
                if said.get("pct", 0) != last:
                    last = said.get("pct", 0)
                    video.tell_progress("hyperframes", percent=last, stage=said.get("stage"))
            elif text.strip():
                tail = [*tail, text.strip()][-8:]
    if process.returncode or not output.exists():
        raise MediaError("HyperFrames: " + " | ".join(tail[-4:]))


def over(source: str | os.PathLike, output: str | os.PathLike, look: str, at: float = 0.5, duration: float = 4, **given) -> Path:
    """Put a look on footage from at (seconds) on, in the footage's own size and
    rate; its length and sound stay."""
    if look not in _OVER:
        raise MediaError(f"{look} fills the picture; over footage go {', '.join(sorted(_OVER))}")
    clip = video.probe(source)
    if at >= clip.duration:
        raise MediaError(f"{clip.path.name}: it has {clip.duration:.2f} s, so nothing can begin at {at:g} s")
    with tempfile.TemporaryDirectory(prefix="over-", dir="/tmp") as work:
        graphic = Path(work) / "graphic.mov"
        size = (video.even(clip.width - 0.5), video.even(clip.height - 0.5))
        render(look, graphic, fps=clip.fps.limit_denominator(1001), duration=min(duration, clip.duration - at), size=size, **given)
        return video.overlay(str(source), str(graphic), str(output), at)
