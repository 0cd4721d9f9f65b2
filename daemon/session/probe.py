"""Says what media files are: one JSON object a line for each path on stdin.

stdin is a JSON list of paths; bytes that are not UTF-8 are surrogate escapes.
Images are read by Pillow (the header alone), sound and video by ffprobe. A file
that can't be read gets an "error" of one line.
"""
import json
import os
import subprocess
import sys


def image(path):
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # only headers are read
    with Image.open(path) as im:
        frames = getattr(im, "n_frames", 1)
        found = {"width": im.width, "height": im.height, "pixel_format": im.mode.replace(";", "-"),
                 "video_codec": (im.format or "").lower(),
                 "has_alpha": "A" in im.getbands() or "a" in im.getbands() or "transparency" in im.info}
        if frames > 1 and im.info.get("duration"):
            found["duration"] = frames * im.info["duration"] / 1000
        return found


def alpha(stream):
    form = stream.get("pix_fmt", "")
    tags = {k.lower(): v for k, v in stream.get("tags", {}).items()}
    return tags.get("alpha_mode") == "1" or form.startswith(("yuva", "rgba", "bgra", "argb", "abgr", "gbrap", "ya8", "ya16", "pal8"))


def ratio(text):
    over, _, under = (text or "0/1").partition("/")
    return float(over) / float(under or 1) if float(under or 1) else 0.0


def stream(path):
    out = subprocess.run(
        ["ffprobe", "-v", "error", "-of", "json", "-show_format", "-show_streams", "file:" + path],
        capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    if out.returncode:
        lines = out.stderr.decode("utf-8", "replace").strip().splitlines() or ["ffprobe can't read it"]
        raise ValueError(lines[-1].replace("file:" + path + ": ", ""))
    answer = json.loads(out.stdout)
    found = {"duration": float(answer.get("format", {}).get("duration") or 0)}
    for s in answer.get("streams", []):
        kind = s.get("codec_type")
        if kind == "video" and "video_codec" not in found and not s.get("disposition", {}).get("attached_pic"):
            found.update(width=s.get("width", 0), height=s.get("height", 0), video_codec=s.get("codec_name", ""),
                         pixel_format=s.get("pix_fmt", ""), has_alpha=alpha(s), fps=round(ratio(s.get("avg_frame_rate")), 3))
            for side in s.get("side_data_list", []):
                if int(side.get("rotation", 0)) % 180:
                    found["width"], found["height"] = found["height"], found["width"]
        elif kind == "audio" and "audio_codec" not in found:
            found["audio_codec"] = s.get("codec_name", "")
    if not found.get("width") and "audio_codec" not in found:
        raise ValueError("no picture and no sound can be read from it")
    return found


def facts(path):
    try:
        found = image(path)
    except Exception:
        found = stream(path)
    return found


for path in json.load(sys.stdin):
    try:
        answer = facts(path)
    except Exception as e:
        answer = {"error": (str(e).splitlines() or [type(e).__name__])[0]}
    answer["path"] = path
    try:
        answer["size"] = os.path.getsize(path)
    except OSError:
        pass
    print(json.dumps(answer), flush=True)
