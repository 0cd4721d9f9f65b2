"""Subtitles: reading SRT and WebVTT, and burning them in so that they can be
read on any footage."""

from __future__ import annotations

import dataclasses
import html
import re
import tempfile
from pathlib import Path

from .errors import MediaError
from .video import ENCODE, EXACT, _rate_args, _sound, even, probe, run

_TIME = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{1,3})")


@dataclasses.dataclass(frozen=True)
class Cue:
    start: float
    end: float
    text: str


def read(path: str) -> list[Cue]:
    """The cues of an .srt or .vtt file, in order of time."""
    raw = Path(path).read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    cues = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.strip().split("\n")
        at = next((i for i, line in enumerate(lines) if "-->" in line), None)
        if at is None:
            continue
        times = _TIME.findall(lines[at])
        if len(times) < 2:
            raise MediaError(f"{Path(path).name}: the line {lines[at]!r} has no two times; write 00:00:01,000 --> 00:00:03,500")
        start, end = (int(h or 0) * 3600 + int(m) * 60 + int(s) + int(ms.ljust(3, "0")) / 1000 for h, m, s, ms in times[:2])
        words = "\n".join(html.unescape(re.sub(r"<[^>]+>|\{\\[^}]*\}", "", line)).strip() for line in lines[at + 1 :])
        if words.strip():
            if end <= start:
                raise MediaError(f"{Path(path).name}: the cue at {start:g} s ends before it begins")
            cues.append(Cue(start, end, words.strip()))
    if not cues:
        raise MediaError(f"{Path(path).name}: no cue was found; it has to be SRT or WebVTT")
    return sorted(cues, key=lambda c: c.start)


def _stamp(seconds: float) -> str:
    hundredths = round(seconds * 100)
    return f"{hundredths // 360000}:{hundredths // 6000 % 60:02}:{hundredths // 100 % 60:02}.{hundredths % 100:02}"


def ass(cues: list[Cue], width: int, height: int, font: str = "Inter") -> str:
    """The cues as an ASS script: white on a dark box, within the title-safe
    area, at a size that can be read on a phone."""
    size = round(min(height * 0.052, width * 0.062) * 1.15)
    side, low = round(width * 0.08), round(height * (0.07 if width >= height else 0.16))
    head = (
        f"[Script Info]\nScriptType: v4.00+\nPlayResX: {width}\nPlayResY: {height}\nWrapStyle: 0\nScaledBorderAndShadow: yes\n\n"
        "[V4+ Styles]\nFormat: Name, Fontname, Fontsize, PrimaryColour, OutlineColour, BackColour, Bold, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, MarginV, Encoding\n"
        f"Style: Default,{font} SemiBold,{size},&H00FFFFFF,&H38101010,&H38101010,0,3,{max(3, size // 4)},0,2,{side},{side},{low},1\n\n"
        "[Events]\nFormat: Layer, Start, End, Style, Text\n"
    )
    lines = [f"Dialogue: 0,{_stamp(c.start)},{_stamp(c.end)},Default,{c.text.replace('{', '(').replace('}', ')').replace(chr(10), chr(92) + 'N')}" for c in cues]
    return head + "\n".join(lines) + "\n"


def burn(source: str, subtitles: str, output: str) -> Path:
    """Burn an SRT or WebVTT file into footage; the sound stays."""
    clip = probe(source)
    w, h = even(clip.width - 0.5), even(clip.height - 0.5)
    with tempfile.NamedTemporaryFile("w", suffix=".ass", dir="/tmp", encoding="utf-8") as script:
        script.write(ass(read(subtitles), w, h))
        script.flush()
        run(["-i", source, "-map", "0:v:0", *_sound(clip), "-vf", f"scale={w}:{h},ass={script.name}", *_rate_args(clip), *ENCODE, *EXACT, output], clip.duration)
    return Path(output)
