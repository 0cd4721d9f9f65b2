"""Reading and writing pictures without losing what matters.

A Picture keeps its pixels as float32 from 0 to 1, so that edits do not round,
and carries the ICC profile, EXIF, resolution and bit depth of its source.
"""

from __future__ import annotations

import dataclasses
import io
import os
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from .errors import MediaError

Image.MAX_IMAGE_PIXELS = 1 << 30

# What Pillow can't read is turned into PNG by these.
_TOOLS = {
    ".heic": ["magick"], ".heif": ["magick"], ".avif": ["magick"], ".jxl": ["djxl"], ".svg": ["rsvg-convert"],
    ".pdf": ["pdftoppm"], ".dng": ["magick"], ".cr2": ["magick"], ".cr3": ["magick"], ".nef": ["magick"],
    ".arw": ["magick"], ".raf": ["magick"], ".orf": ["magick"], ".rw2": ["magick"], ".exr": ["magick"],
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """pixels: height x width x channels, float32 0..1, encoded as the profile
    says; 1 channel is grey, 3 are RGB, a 2nd or 4th is alpha (not premultiplied).
    """

    pixels: np.ndarray
    depth: int = 8  # bits a channel of the source
    icc: bytes | None = None
    exif: bytes | None = None
    dpi: tuple[float, float] | None = None
    name: str = "picture"

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def alpha(self) -> np.ndarray | None:
        """The alpha channel (height x width), or None."""
        return self.pixels[..., -1] if self.pixels.shape[2] in (2, 4) else None

    @property
    def colour(self) -> np.ndarray:
        """The channels without alpha."""
        return self.pixels[..., :-1] if self.alpha is not None else self.pixels

    def with_pixels(self, pixels: np.ndarray) -> Picture:
        """The same picture with other pixels, clipped to 0..1."""
        return dataclasses.replace(self, pixels=np.clip(pixels, 0, 1).astype(np.float32))

    def with_colour(self, colour: np.ndarray) -> Picture:
        """Other colours, the same alpha."""
        if self.alpha is None:
            return self.with_pixels(colour)
        return self.with_pixels(np.concatenate([colour, self.pixels[..., -1:]], axis=2))

    def rgb(self) -> Picture:
        """Grey turned into RGB; RGB stays."""
        if self.colour.shape[2] == 3:
            return self
        wide = np.repeat(self.colour, 3, axis=2)
        parts = [wide] if self.alpha is None else [wide, self.pixels[..., -1:]]
        return self.with_pixels(np.concatenate(parts, axis=2))


def open_picture(path: str | os.PathLike, page: int = 0) -> Picture:
    """Read a picture upright (EXIF orientation applied). page picks one of a
    multi-page TIFF, an animation or a PDF, from 0."""
    path = Path(path)
    _must_hold_data(path)
    tool = _TOOLS.get(path.suffix.lower())
    if tool:
        with tempfile.TemporaryDirectory() as work:
            return dataclasses.replace(_open(_convert(path, Path(work), tool[0], page), 0), name=path.name)
    return _open(path, page)


def pages(path: str | os.PathLike) -> int:
    """How many pages or frames a file has."""
    _must_hold_data(Path(path))
    with _pillow(Path(path)) as image:
        return getattr(image, "n_frames", 1)


def _must_hold_data(path: Path) -> None:
    if not path.is_file():
        raise MediaError(f"{path.name}: there is no such file; look with `ls /inputs`")
    if path.stat().st_size == 0:
        raise MediaError(f"{path.name}: the file is empty (0 bytes); upload it again")


def _pillow(path: Path) -> Image.Image:
    try:
        return Image.open(path)
    except UnidentifiedImageError:
        raise MediaError(f"{path.name}: this is not a picture in a format that is known here; `file` tells what it is") from None
    except (OSError, SyntaxError, ValueError) as err:
        raise MediaError(f"{path.name}: it is cut off or damaged ({err}); upload it again") from None


def _open(path: Path, page: int) -> Picture:
    with _pillow(path) as image:
        count = getattr(image, "n_frames", 1)
        if not 0 <= page < count:
            raise MediaError(f"{path.name}: there is no page {page}; it has {count}, counted from 0")
        image.seek(page)
        try:
            image.load()
        except (OSError, SyntaxError, ValueError, EOFError) as err:
            raise MediaError(f"{path.name}: it is cut off or damaged ({err}); upload it again") from None
        return _from_pillow(image, path)


def _from_pillow(image: Image.Image, path: Path) -> Picture:
    icc, dpi = image.info.get("icc_profile"), image.info.get("dpi")
    exif = image.getexif()
    orientation = exif.get(0x0112, 1)
    deep = _sixteen(image, path)
    if deep is not None:
        pixels, depth = _turn(deep, orientation), 16
    else:
        image = ImageOps.exif_transpose(image)
        if image.mode == "CMYK":
            image, icc = _from_cmyk(image, icc)
        pixels, depth = _eight(image), 8
    if 0x0112 in exif:
        exif[0x0112] = 1
    dpi = tuple(float(v) for v in dpi) if dpi and all(float(v) > 0 for v in dpi) else None
    return Picture(pixels, depth, icc, exif.tobytes() if len(exif) else None, dpi, path.name)


def _eight(image: Image.Image) -> np.ndarray:
    if image.mode in ("1", "L"):
        image = image.convert("L")
    elif image.mode == "LA" or (image.mode == "L" and "transparency" in image.info):
        image = image.convert("LA")
    elif image.mode in ("RGBA", "PA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    else:
        image = image.convert("RGB")
    pixels = np.asarray(image, np.float32) / 255
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _sixteen(image: Image.Image, path: Path) -> np.ndarray | None:
    """The pixels of a 16-bit source, which Pillow would round to 8."""
    if image.mode.startswith("I"):
        return (np.asarray(image, np.float32) / 65535)[..., None]
    bits = image.tag_v2.get(258, (8,)) if hasattr(image, "tag_v2") else (8,)
    if image.format == "PNG":
        bits = (path.read_bytes()[24],)
    if max(bits) != 16 or getattr(image, "n_frames", 1) > 1:
        return None
    import cv2

    array = cv2.imread(str(path), cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION)
    if array is None or array.dtype != np.uint16:
        return None
    if array.ndim == 2:
        return array[..., None].astype(np.float32) / 65535
    order = [2, 1, 0, 3][: array.shape[2]]
    return array[..., order].astype(np.float32) / 65535


def _turn(pixels: np.ndarray, orientation: int) -> np.ndarray:
    turned = {
        2: lambda p: p[:, ::-1], 3: lambda p: p[::-1, ::-1], 4: lambda p: p[::-1],
        5: lambda p: p.swapaxes(0, 1), 6: lambda p: np.rot90(p, 3),
        7: lambda p: p[::-1, ::-1].swapaxes(0, 1), 8: lambda p: np.rot90(p, 1),
    }
    return np.ascontiguousarray(turned.get(orientation, lambda p: p)(pixels))


def _from_cmyk(image: Image.Image, icc: bytes | None) -> tuple[Image.Image, bytes | None]:
    """CMYK through its profile to sRGB; without a profile, plainly."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    if icc:
        try:
            image = ImageCms.profileToProfile(image, io.BytesIO(icc), srgb, outputMode="RGB")
            return image, srgb.tobytes()
        except ImageCms.PyCMSError:
            pass  # a broken profile is as good as none
    return image.convert("RGB"), None


def _convert(path: Path, work: Path, tool: str, page: int) -> Path:
    out = work / "picture.png"
    argv = {
        "magick": ["magick", f"{path}[{page}]", "-auto-orient", str(out)],
        "djxl": ["djxl", "--quiet", str(path), str(out)],
        "rsvg-convert": ["rsvg-convert", str(path), "-o", str(out)],
        "pdftoppm": ["pdftoppm", "-png", "-r", "200", "-singlefile", "-f", str(page + 1), "-l", str(page + 1), str(path), str(out.with_suffix(""))],
    }[tool]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode or not out.exists():
        reason = (done.stderr.strip().splitlines() or ["no such page"])[-1]
        raise MediaError(f"{path.name}: it can't be read: {reason}")
    return out


def save_picture(picture: Picture, path: str | os.PathLike, quality: int = 92) -> Path:
    """Write a picture; the format is the name's. 16 bits stay 16 in PNG and
    TIFF; profile, EXIF and resolution are kept; JPEG flattens alpha on white.
    The same picture gives the same bytes."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".jpg", ".jpeg", ".webp", ".gif", ".bmp"):
        _save_eight(picture, path, suffix, quality)
    elif suffix == ".png":
        path.write_bytes(png(picture))
    elif suffix in (".tif", ".tiff", ".avif", ".heic", ".jxl"):
        with tempfile.TemporaryDirectory() as work:
            source = Path(work) / "picture.png"
            source.write_bytes(png(picture))
            argv = ["magick", str(source), "-quality", str(quality), str(path)]
            if suffix == ".jxl":
                argv = ["cjxl", "--quiet", "-q", str(quality), str(source), str(path)]
            done = subprocess.run(argv, capture_output=True, text=True)
            if done.returncode:
                raise MediaError(f"{path.name}: it can't be written: {done.stderr.strip()[-300:]}")
    else:
        raise MediaError(f"{path.name}: {suffix or 'a name without an ending'} can't be written; use .jpg, .png, .webp, .tif, .avif, .heic or .jxl")
    return path


def _save_eight(picture: Picture, path: Path, suffix: str, quality: int) -> None:
    if suffix in (".jpg", ".jpeg", ".bmp") and picture.alpha is not None:
        picture = flatten(picture)
    image = to_pillow(picture)
    options: dict = {k: v for k, v in (("icc_profile", picture.icc), ("exif", picture.exif), ("dpi", picture.dpi)) if v}
    if suffix in (".jpg", ".jpeg"):
        options |= {"quality": quality, "subsampling": 0 if quality >= 90 else 2, "optimize": True}
    elif suffix == ".webp":
        options |= {"quality": quality, "method": 4}
        options.pop("dpi", None)
    else:
        options = {}
    image.save(path, **options)


def flatten(picture: Picture, colour: tuple[float, float, float] = (1, 1, 1)) -> Picture:
    """The picture on a plain colour (0..1 a channel), without alpha."""
    if picture.alpha is None:
        return picture
    picture = picture.rgb()
    alpha = picture.pixels[..., 3:]
    return picture.with_pixels(picture.pixels[..., :3] * alpha + np.float32(colour) * (1 - alpha))


def to_pillow(picture: Picture) -> Image.Image:
    """The picture as an 8-bit Pillow image."""
    array = np.rint(picture.pixels * 255).astype(np.uint8)
    return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)


def from_array(pixels: np.ndarray, name: str = "picture") -> Picture:
    """A picture from an 8-bit, 16-bit or float array."""
    pixels = np.asarray(pixels)
    depth = 16 if pixels.dtype == np.uint16 else 8
    if pixels.dtype != np.float32:
        pixels = pixels.astype(np.float32) / {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535}.get(pixels.dtype, 1)
    return Picture(pixels[..., None] if pixels.ndim == 2 else pixels, depth, name=name)


def png(picture: Picture) -> bytes:
    """The picture as PNG, in the depth of its source, with all that it carries."""
    deep = picture.depth == 16
    array = np.rint(picture.pixels * (65535 if deep else 255)).astype(">u2" if deep else np.uint8)
    height, width, channels = array.shape
    rows = array.reshape(height, -1).view(np.uint8).reshape(height, -1)
    step = channels * (2 if deep else 1)
    # Filter 1 (the difference to the pixel on the left) for each row.
    filtered = rows.copy()
    filtered[:, step:] -= rows[:, :-step]
    body = np.concatenate([np.ones((height, 1), np.uint8), filtered], axis=1).tobytes()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 16 if deep else 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0))]
    if picture.icc:
        chunks.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(picture.icc, 9)))
    if picture.dpi:
        chunks.append((b"pHYs", struct.pack(">IIB", *(round(v / 0.0254) for v in picture.dpi), 1)))
    if picture.exif:
        chunks.append((b"eXIf", picture.exif.removeprefix(b"Exif\0\0")))
    chunks += [(b"IDAT", zlib.compress(body, 6)), (b"IEND", b"")]
    out = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return out
