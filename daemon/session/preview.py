"""Makes small pictures of media files: one JSON object a line for each.

stdin is a JSON list of {"path", "kind"}: kind is image, video or audio. An image
gives "thumb"; a video gives "thumb", its poster, and "strip", eight pictures
spread over its length; sound gives "wave". Each is a WebP in base64. What can't
be made is left out.
"""
import base64
import io
import json
import os
import subprocess
import sys

from PIL import Image, ImageOps

SIDE = 320
FRAMES = 8
FRAME_HEIGHT = 90

os.nice(10)  # the user's own work comes first
Image.MAX_IMAGE_PIXELS = 200_000_000


def webp(picture):
    out = io.BytesIO()
    if picture.mode not in ("RGB", "RGBA"):
        picture = picture.convert("RGBA" if "A" in picture.getbands() or "transparency" in picture.info else "RGB")
    picture.save(out, "WEBP", quality=75, method=2)
    return base64.b64encode(out.getvalue()).decode()


def ffmpeg(*args):
    run = subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-threads", "1", *args, "-"],
                         capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
    if run.returncode or not run.stdout:
        raise ValueError("ffmpeg")
    return Image.open(io.BytesIO(run.stdout))


def duration(path):
    run = subprocess.run(["ffprobe", "-v", "error", "-of", "csv=p=0", "-show_entries", "format=duration", "file:" + path],
                         capture_output=True, stdin=subprocess.DEVNULL, timeout=15)
    return float(run.stdout or 0)


def frame(path, at, scale):
    return ffmpeg("-ss", f"{at:.3f}", "-i", "file:" + path, "-frames:v", "1", "-vf", scale, "-f", "image2pipe", "-c:v", "png")


def image(path):
    with Image.open(path) as im:
        im.draft("RGB", (2 * SIDE, 2 * SIDE))
        im = ImageOps.exif_transpose(im)
        im.thumbnail((SIDE, SIDE))
        yield "thumb", im


def video(path):
    length = duration(path)
    small = f"scale='min({SIDE},iw)':'min({SIDE},ih)':force_original_aspect_ratio=decrease"
    yield "thumb", frame(path, length / 10, small)
    pictures = []
    for i in range(FRAMES):
        try:
            pictures.append(frame(path, length * (i + 0.5) / FRAMES, f"scale=-2:{FRAME_HEIGHT}"))
        except Exception:
            break
    if pictures:
        width = pictures[0].width
        strip = Image.new("RGB", (width * len(pictures), FRAME_HEIGHT))
        for i, picture in enumerate(pictures):
            strip.paste(picture, (i * width, 0))
        yield "strip", strip


def audio(path):
    yield "wave", ffmpeg("-i", "file:" + path, "-filter_complex", "aformat=channel_layouts=mono,showwavespic=s=640x120:colors=white",
                         "-frames:v", "1", "-f", "image2pipe", "-c:v", "png")


for wanted in json.load(sys.stdin):
    made = {}
    try:
        for name, picture in {"image": image, "video": video, "audio": audio}[wanted["kind"]](wanted["path"]):
            made[name] = webp(picture)
    except Exception:
        pass  # what was made so far is shown
    print(json.dumps({"path": wanted["path"], "previews": made}), flush=True)
