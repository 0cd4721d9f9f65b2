"""Looking at footage, and ffmpeg without shell strings.

Functions that end in _args return an argument list for run; the others do the
whole job. Sound is carried through, odd sizes are made even, rotation and
variable frame rates are honoured, and the same input gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from .errors import MediaError
from .geometry import parse_aspect

# One number of threads: x264 decides by it where frames begin to differ.
ENCODE = ["-c:v", "libx264", "-preset", "medium", "-crf", "18", "-pix_fmt", "yuv420p", "-threads", "4", "-c:a", "aac", "-b:a", "192k"]
EXACT = ["-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", "-movflags", "+faststart"]


@dataclasses.dataclass(frozen=True)
class Clip:
    """What a file holds. width and height are as shown (rotation applied)."""

    path: Path
    width: int
    height: int
    fps: Fraction
    duration: float  # seconds
    has_sound: bool
    rotation: int
    pixel_format: str
    codec: str
    variable_rate: bool
    matrix: str  # how its colours are coded: bt709 (HD) or smpte170m (SD), for most


def probe(path: str | os.PathLike) -> Clip:
    """Look at a video file."""
    path = Path(path)
    if not path.is_file():
        raise MediaError(f"{path.name}: there is no such file; look with `ls /inputs`")
    if path.stat().st_size == 0:
        raise MediaError(f"{path.name}: the file is empty (0 bytes); upload it again")
    done = subprocess.run(
        ["ffprobe", "-v", "error", "-of", "json", "-show_streams", "-show_format", str(path)], capture_output=True, text=True
    )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1].split(": ", 1)[-1] if done.stderr.strip() else "it is no media file"
        raise MediaError(f"{path.name}: it can't be read: {reason}; it may be cut off")
    found = json.loads(done.stdout)
    pictures = [s for s in found["streams"] if s["codec_type"] == "video" and not s.get("disposition", {}).get("attached_pic")]
    if not pictures:
        raise MediaError(f"{path.name}: it has no picture, only {', '.join(s['codec_type'] for s in found['streams']) or 'nothing'}")
    v = pictures[0]
    rotation = next((int(d["rotation"]) for d in v.get("side_data_list", []) if "rotation" in d), 0) % 360
    width, height = v["width"], v["height"]
    if rotation in (90, 270):
        width, height = height, width
    rate, average = Fraction(v["r_frame_rate"]), _rate(v["avg_frame_rate"])
    duration = float(v.get("duration") or found["format"].get("duration") or 0)
    return Clip(
        path, width, height, average or rate, duration, any(s["codec_type"] == "audio" for s in found["streams"]), rotation,
        v.get("pix_fmt", "unknown"), v["codec_name"], bool(average) and abs(rate / average - 1) > Fraction(1, 50),
        v["color_space"] if v.get("color_space") in ("bt709", "smpte170m", "bt470bg", "bt2020nc") else "bt709" if v["height"] > 576 else "smpte170m",
    )


def _rate(text: str) -> Fraction | None:
    top, _, bottom = text.partition("/")
    return Fraction(int(top), int(bottom)) if int(bottom or 1) and int(top) else None


def run(args: Sequence[str], seconds: float | None = None) -> None:
    """Run ffmpeg with these arguments (without 'ffmpeg'). With seconds, the
    length of the result, it tells progress: per cent, frame, speed, time left."""
    argv = ["ffmpeg", "-y", "-hide_banner", "-nostdin", "-loglevel", "error", "-progress", "pipe:1", "-nostats", *map(str, args)]
    began, last = time.monotonic(), 0.0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        state: dict[str, str] = {}
        for line in process.stdout:
            key, _, value = line.strip().partition("=")
            state[key] = value
            now = time.monotonic()
            if key == "progress" and seconds and (now - last > 1 or value == "end"):
                last = now
                tell_progress("ffmpeg", **_progress(state, seconds, now - began))
        errors = process.stderr.read()
    if process.returncode:
        lines = [l for l in errors.strip().splitlines() if l.strip()] or ["it gave no reason"]
        raise MediaError("ffmpeg: " + " | ".join(lines[-3:]))


def tell_progress(by: str, **what) -> None:
    """Tell the sandbox's host how far the work is: percent (0 to 100), frame, fps,
    speed (seconds of the result a second), eta (seconds), stage. It shows in the
    chat's events and in the progress bar of who waits."""
    print("@progress " + json.dumps({"by": by, **{k: v for k, v in what.items() if v is not None}}), file=sys.stderr, flush=True)


def _progress(state: dict[str, str], seconds: float, passed: float) -> dict[str, float | None]:
    """What ffmpeg's report says of a result of so many seconds."""

    def number(key: str) -> float | None:
        try:
            return float(state.get(key, "").strip().rstrip("x"))
        except ValueError:
            return None  # N/A

    done = min(1.0, max(0.0, (number("out_time_us") or 0) / 1e6 / seconds))
    left = round(passed * (1 / done - 1), 1) if done > 0.01 else None
    return {"percent": round(100 * done, 1), "frame": number("frame"), "fps": number("fps"), "speed": number("speed"), "eta": left}


def even(value: float) -> int:
    """The nearest even number of pixels, at least 2."""
    return max(2, round(value / 2) * 2)


def _sound(clip: Clip) -> list[str]:
    return ["-map", "0:a:0", "-ar", "48000"] if clip.has_sound else []


def _rate_args(clip: Clip) -> list[str]:
    """A constant rate: players and editors count frames."""
    return ["-r", str(clip.fps.limit_denominator(1001)), "-fps_mode", "cfr"]


def cut(source: str, output: str, start: float, end: float, exact: bool = True) -> Path:
    """Keep start to end (seconds). exact encodes; otherwise nothing is encoded
    and the cut falls on the key frame before start."""
    clip = probe(source)
    if not 0 <= start < end or start >= clip.duration:
        raise MediaError(f"{clip.path.name}: {start:g} to {end:g} s is not within its {clip.duration:.2f} s")
    end = min(end, clip.duration)
    if not exact:
        run(["-ss", start, "-to", end, "-i", source, "-map", "0:v:0", "-map", "0:a?", "-c", "copy", *EXACT, output], end - start)
    else:
        run(["-ss", start, "-i", source, "-t", end - start, "-map", "0:v:0", *_sound(clip), "-vf", "scale=trunc(iw/2)*2:trunc(ih/2)*2", *_rate_args(clip), *ENCODE, *EXACT, output], end - start)
    return Path(output)


def reframe(source: str, output: str, aspect: str, fit: str = "crop", focus: float = 0.5) -> Path:
    """Another aspect (16:9, 9:16, 1:1, 4:5): crop around focus (0 left or top,
    1 right or bottom), or blur: the whole picture over a blurred copy of itself."""
    clip, want = probe(source), parse_aspect(aspect)
    width, height = even(min(clip.width, clip.height * want)), even(min(clip.height, clip.width / want))
    if fit == "crop":
        graph = f"[0:v]crop={width}:{height}:(iw-{width})*{focus}:(ih-{height})*{focus}[v]"
    elif fit == "blur":
        side = max(clip.width, clip.height)
        width, height = (even(side), even(side / want)) if want >= 1 else (even(side * want), even(side))
        graph = (
            f"[0:v]split[a][b];[a]scale={width}:{height}:force_original_aspect_ratio=increase,crop={width}:{height},gblur=sigma={max(width, height) / 40},eq=brightness=-0.12[back];"
            f"[b]scale={width}:{height}:force_original_aspect_ratio=decrease:flags=lanczos[front];[back][front]overlay=(W-w)/2:(H-h)/2[v]"
        )
    else:
        raise MediaError(f"fit {fit!r} is not crop or blur")
    run(["-i", source, "-filter_complex", graph, "-map", "[v]", *_sound(clip), *_rate_args(clip), *ENCODE, *EXACT, output], clip.duration)
    return Path(output)


def overlay(source: str, graphic: str, output: str, at: float = 0) -> Path:
    """A graphic with alpha (as graphics.render makes it) over footage from at
    (seconds) on. The footage's length, rate and sound stay."""
    clip, top = probe(source), probe(graphic)
    w, h = even(clip.width - 0.5), even(clip.height - 0.5)
    graph = f"[0:v]scale={w}:{h}:flags=lanczos,format=yuv444p[base];[1:v]scale={w}:{h}:flags=lanczos:out_color_matrix={clip.matrix}:out_range=tv,format=yuva444p,setpts=PTS-STARTPTS+{at}/TB[top];[base][top]overlay=eof_action=pass:format=yuv444,format=yuv420p[v]"
    run(["-i", source, "-i", top.path, "-filter_complex", graph, "-map", "[v]", *_sound(clip), *_rate_args(clip), *ENCODE, *EXACT, output], clip.duration)
    return Path(output)


_CORNERS = {"top-left": ("M", "M"), "top-right": ("W-w-M", "M"), "bottom-left": ("M", "H-h-M"), "bottom-right": ("W-w-M", "H-h-M")}


def picture_in_picture(source: str, inset: str, output: str, corner: str = "bottom-right", share: float = 0.28, radius: float = 0.06) -> Path:
    """A second video, with round corners and a soft shadow, in a corner of the
    first; the first one's length and sound stay. share is of its width."""
    if corner not in _CORNERS:
        raise MediaError(f"corner {corner!r} is not one of {', '.join(_CORNERS)}")
    clip, small = probe(source), probe(inset)
    base_w, base_h = even(clip.width - 0.5), even(clip.height - 0.5)
    w = even(base_w * share)
    h = even(w * small.height / small.width)
    margin, r, pad = round(min(base_w, base_h) * 0.05), max(2, round(w * radius)), round(w * 0.06)
    x, y = (v.replace("M", str(margin)) for v in _CORNERS[corner])
    far = f"hypot(max(max({r}-X\\,X-W+1+{r})\\,0)\\,max(max({r}-Y\\,Y-H+1+{r})\\,0))"
    graph = (
        f"[1:v]scale={w}:{h}:flags=lanczos,setsar=1,format=rgb24[in];"
        f"color=white:s={w}x{h}:r=1,format=gray,geq=lum='255*clip({r}+0.5-{far}\\,0\\,1)',loop=-1:1:0,split[m1][m2];"
        f"[in][m1]alphamerge[card];"
        f"[m2]pad={w + 4 * pad}:{h + 4 * pad}:{2 * pad}:{2 * pad}:black,gblur=sigma={pad * 0.6},lut=y=val*0.55[soft];"
        f"color=black:s={w + 4 * pad}x{h + 4 * pad}:r=1,loop=-1:1:0[dark];[dark][soft]alphamerge[shade];"
        f"[0:v]scale={base_w}:{base_h}[base];[base][shade]overlay={x.replace('w', str(w))}-{2 * pad}:{y.replace('h', str(h))}-{2 * pad}+{pad // 3}:shortest=0:eof_action=repeat[b2];"
        f"[b2][card]overlay={x}:{y}:eof_action=pass,format=yuv420p[v]"
    )
    run(["-i", source, "-i", inset, "-filter_complex", graph, "-map", "[v]", *_sound(clip), "-t", clip.duration, *_rate_args(clip), *ENCODE, *EXACT, output], clip.duration)
    return Path(output)


def montage(sources: Sequence[str], output: str, each: float = 2.0, overlap: float = 0.4, transition: str = "fade", size: tuple[int, int] = (1280, 720), fps: int = 30) -> Path:
    """The first seconds of several clips, one after the other with a transition
    (any of ffmpeg's xfade), their sound cross-faded; what has no sound is silent."""
    clips = [probe(s) for s in sources]
    if len(clips) < 2:
        raise MediaError("a montage needs two clips at least")
    lengths = [min(each, c.duration) for c in clips]
    if min(lengths) <= 2 * overlap:
        raise MediaError(f"the shortest part has {min(lengths):.2f} s; overlap {overlap:g} s has to be less than half of it")
    w, h = even(size[0]), even(size[1])
    args: list[str] = []
    graph = []
    for i, (clip, length) in enumerate(zip(clips, lengths)):
        args += ["-t", str(length), "-i", str(clip.path)]
        graph.append(f"[{i}:v]scale={w}:{h}:force_original_aspect_ratio=increase:flags=lanczos,crop={w}:{h},setsar=1,fps={fps},format=yuv420p,settb=1/{fps}[v{i}]")
        sound = f"[{i}:a]aresample=48000,aformat=channel_layouts=stereo,apad" if clip.has_sound else "anullsrc=r=48000:cl=stereo"
        graph.append(f"{sound},atrim=0:{length},asetpts=PTS-STARTPTS[a{i}]")
    picture, sound, at = "v0", "a0", lengths[0] - overlap
    for i in range(1, len(clips)):
        graph.append(f"[{picture}][v{i}]xfade=transition={transition}:duration={overlap}:offset={at:.6f}[x{i}]")
        graph.append(f"[{sound}][a{i}]acrossfade=d={overlap}[y{i}]")
        picture, sound, at = f"x{i}", f"y{i}", at + lengths[i] - overlap
    total = at + overlap
    run([*args, "-filter_complex", ";".join(graph), "-map", f"[{picture}]", "-map", f"[{sound}]", "-t", f"{total:.6f}", *ENCODE, *EXACT, output], total)
    return Path(output)


def slideshow(pictures: Sequence[str], output: str, each: float = 3.0, overlap: float = 0.6, size: tuple[int, int] = (1280, 720), fps: int = 30, sound: str | None = None) -> Path:
    """Pictures that move slowly, in turns closer and farther, and melt into each
    other; with sound, its beginning underneath, faded out at the end."""
    if not pictures:
        raise MediaError("a slideshow needs a picture at least")
    if overlap >= each / 2:
        raise MediaError(f"overlap {overlap:g} s has to be less than half of {each:g} s")
    from .picture import flatten, open_picture, save_picture

    w, h, n = even(size[0]), even(size[1]), round(each * fps)
    args: list[str] = []
    graph = []
    work = Path(output).with_suffix("").name + "-slides"
    folder = Path("/tmp") / work
    folder.mkdir(exist_ok=True)
    for i, source in enumerate(pictures):
        slide = save_picture(flatten(open_picture(source)).rgb(), folder / f"{i}.png")
        args += ["-i", str(slide)]
        zoom = f"1+0.10*on/{n}" if i % 2 == 0 else f"1.10-0.10*on/{n}"
        # At four times the size a step of a pixel is not seen.
        graph.append(f"[{i}:v]scale={4 * w}:{4 * h}:force_original_aspect_ratio=increase:flags=lanczos,crop={4 * w}:{4 * h},zoompan=z='{zoom}':x='iw/2-iw/zoom/2':y='ih/2-ih/zoom/2':d={n}:s={w}x{h}:fps={fps},setsar=1,format=yuv420p,settb=1/{fps}[v{i}]")
    last, at = "v0", each - overlap
    for i in range(1, len(pictures)):
        graph.append(f"[{last}][v{i}]xfade=transition=fade:duration={overlap}:offset={at:.6f}[x{i}]")
        last, at = f"x{i}", at + each - overlap
    total = at + overlap
    tail: list[str] = []
    if sound:
        args += ["-i", sound]
        graph.append(f"[{len(pictures)}:a]aresample=48000,apad,atrim=0:{total},afade=t=out:st={max(0, total - 1)}:d=1[a]")
        tail = ["-map", "[a]"]
    run([*args, "-filter_complex", ";".join(graph), "-map", f"[{last}]", *tail, "-t", f"{total:.6f}", *ENCODE, *EXACT, output], total)
    return Path(output)


def loudness(source: str, output: str, target: float = -16) -> Path:
    """Bring the sound to a loudness (LUFS), measured first and then moved
    linearly; the picture is not touched."""
    clip = probe(source)
    if not clip.has_sound:
        raise MediaError(f"{clip.path.name}: it has no sound")
    look = subprocess.run(["ffmpeg", "-hide_banner", "-nostdin", "-i", source, "-af", f"loudnorm=I={target}:TP=-1.5:LRA=11:print_format=json", "-f", "null", "-"], capture_output=True, text=True)
    if look.returncode or "{" not in look.stderr:
        raise MediaError(f"{clip.path.name}: its loudness can't be measured")
    m, _ = json.JSONDecoder().raw_decode(look.stderr[look.stderr.rindex("{") :])
    known = ":".join(f"measured_{k}={m[f'input_{v}']}" for k, v in (("I", "i"), ("TP", "tp"), ("LRA", "lra"), ("thresh", "thresh")))
    run(["-i", source, "-map", "0:v:0", "-map", "0:a:0", "-c:v", "copy", "-af", f"loudnorm=I={target}:TP=-1.5:LRA=11:{known}:offset={m['target_offset']}:linear=true", "-ar", "48000", "-c:a", "aac", "-b:a", "192k", *EXACT, output], clip.duration)
    return Path(output)
