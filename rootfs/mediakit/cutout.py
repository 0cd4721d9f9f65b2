"""Removing backgrounds, deterministically: chroma key, plain background, GrabCut.

Each returns a Cutout: the picture with alpha and with the background's colour
taken out of its edges, and a confidence. Each refuses, and says why, when the
picture does not suit it. For hair before a busy background and for glass none
of these is enough: say so, and ask for another picture or a matting model.
"""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
from scipy import ndimage

from .errors import MediaError
from .picture import Picture
from .tone import _guided, luminance, to_oklab

cv2.setNumThreads(1)

# Distances in Oklab (times 100): what differs less is background, more is not.
_SAME, _OTHER = 4.0, 14.0


@dataclasses.dataclass(frozen=True)
class Cutout:
    picture: Picture
    confidence: float  # 0..1
    note: str

    @property
    def alpha(self) -> np.ndarray:
        return self.picture.pixels[..., -1]


def _rgb(picture: Picture) -> np.ndarray:
    return picture.rgb().colour


def _border(height: int, width: int) -> np.ndarray:
    """A frame of 2 % at the edges, at least 2 pixels."""
    depth = max(2, min(height, width) // 50)
    frame = np.ones((height, width), bool)
    frame[depth:-depth, depth:-depth] = False
    return frame


def _background_model(rgb: np.ndarray, known: np.ndarray) -> np.ndarray:
    """A smooth background (second order in x and y) through known pixels,
    robust against what is not background among them."""
    h, w = known.shape
    y, x = np.mgrid[-1 : 1 : h * 1j, -1 : 1 : w * 1j]
    terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1).reshape(-1, 6)
    basis, values = terms[known.ravel()], rgb[known].astype(np.float64)
    step = max(1, len(values) // 20000)
    basis, values = basis[::step], values[::step]
    keep = np.linalg.norm(values - np.median(values, axis=0), axis=1)
    keep = keep <= max(np.percentile(keep, 70), 0.02)
    for _ in range(3):
        fit, *_ = np.linalg.lstsq(basis[keep], values[keep], rcond=None)
        off = np.linalg.norm(values - basis @ fit, axis=1)
        keep = off <= max(3 * np.median(off), 0.01)
    return np.clip(terms @ fit, 0, 1).reshape(h, w, 3).astype(np.float32)


def _nearest(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each pixel the values of the nearest pixel in mask, smoothed."""
    weight = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 2)
    smooth = cv2.GaussianBlur(values * mask[..., None].astype(np.float32), (0, 0), 2) / np.maximum(weight, 1e-4)[..., None]
    index = ndimage.distance_transform_edt(~mask, return_distances=False, return_indices=True)
    return smooth[index[0], index[1]]


def _matte(rgb: np.ndarray, inside: np.ndarray, outside: np.ndarray, back: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Alpha and clean colours. Between what is surely inside and outside, alpha
    is where the colour lies on the line from background to foreground."""
    front = _nearest(inside, rgb)
    if back is None:
        back = _nearest(outside, rgb)
    line = front - back
    length = (line**2).sum(2)
    alpha = np.clip(((rgb - back) * line).sum(2) / np.maximum(length, 1e-4), 0, 1)
    alpha[inside], alpha[outside] = 1, 0
    a = np.maximum(alpha, 0.05)[..., None]
    clean = np.where(alpha[..., None] >= 0.999, rgb, np.clip((rgb - (1 - a) * back) / a, 0, 1))
    # Where little of the foreground is left its own colour can't be known.
    trust = np.clip((alpha - 0.1) / 0.4, 0, 1)[..., None]
    return alpha.astype(np.float32), (clean * trust + front * (1 - trust)).astype(np.float32)


def _result(picture: Picture, colour: np.ndarray, alpha: np.ndarray, confidence: float, note: str) -> Cutout:
    if picture.alpha is not None:
        alpha = alpha * picture.alpha
    share = float(alpha.mean())
    if not 0.001 < share < 0.999:
        raise MediaError(f"{picture.name}: {'everything' if share > 0.5 else 'nothing'} would be kept; the background is not what was expected")
    pixels = np.concatenate([colour, alpha[..., None]], axis=2)
    return Cutout(picture.rgb().with_pixels(pixels), round(float(np.clip(confidence, 0, 1)), 2), note)


def _keyed(picture: Picture, back: np.ndarray, note: str, noise: float) -> Cutout:
    rgb = _rgb(picture)
    distance = np.linalg.norm(to_oklab(rgb) - to_oklab(back), axis=2) * 100
    other = max(_OTHER, 5 * noise)
    inside = ndimage.binary_erosion(distance > other, iterations=2)
    outside = ndimage.binary_erosion(distance < max(_SAME, 2.5 * noise), iterations=1)
    if not inside.any():
        raise MediaError(f"{picture.name}: nothing stands out from the background; it is too alike")
    alpha, colour = _matte(rgb, inside, outside, back)
    # An edge is a few pixels wide: what is unsure far from one is doubtful.
    unsure = ~inside & ~outside
    far = unsure & (ndimage.distance_transform_edt(~inside) > 12)
    confidence = 1 - min(0.6, noise / 10) - min(0.6, 4 * float(far.mean()))
    return _result(picture, colour, alpha, confidence, note)


def plain_background(picture: Picture) -> Cutout:
    """Cut out what stands before a plain or evenly shaded background (studio,
    white table)."""
    rgb = _rgb(picture)
    frame = _border(*rgb.shape[:2])
    back = _background_model(rgb, frame)
    off = np.linalg.norm(to_oklab(rgb) - to_oklab(back), axis=2)[frame] * 100
    fits, noise = float((off < 6).mean()), float(np.median(off))
    if fits < 0.6:
        raise MediaError(f"{picture.name}: the background is not plain (only {fits:.0%} of the edge fits one shade); use grabcut with a box")
    return _keyed(picture, back, f"plain background, {fits:.0%} of the edge fits", noise)


def chroma_key(picture: Picture, colour: tuple[float, float, float] | None = None) -> Cutout:
    """Cut out what stands before a green or blue screen. colour (0..1 a channel)
    is found at the edges when it is not given; spill on the subject is removed."""
    rgb = _rgb(picture)
    frame = _border(*rgb.shape[:2])
    key = np.float32(colour) if colour is not None else np.median(rgb[frame], axis=0)
    main = int(key.argmax())
    others = [i for i in range(3) if i != main]
    if key[main] - max(key[others]) < 0.1:
        raise MediaError(f"{picture.name}: the background is not a green or blue screen (it is about {np.round(key, 2).tolist()}); use plain_background or grabcut")
    near = np.linalg.norm(to_oklab(rgb) - to_oklab(key[None, None]), axis=2) * 100 < 12
    if near[frame].mean() < 0.3:
        raise MediaError(f"{picture.name}: only {near[frame].mean():.0%} of the edge has the key colour; crop to the screen, or give the colour")
    back = _background_model(rgb, near)
    noise = float(np.median(np.linalg.norm(to_oklab(rgb) - to_oklab(back), axis=2)[near]) * 100)
    found = _keyed(picture, back, "chroma key", noise)
    pixels = found.picture.pixels.copy()
    most = pixels[..., others].max(2)
    edge = ndimage.distance_transform_edt(pixels[..., 3] >= 0.999) < 12
    pixels[..., main] = np.where(edge, np.minimum(pixels[..., main], most), pixels[..., main])
    return dataclasses.replace(found, picture=found.picture.with_pixels(pixels))


def grabcut(picture: Picture, box: tuple[int, int, int, int]) -> Cutout:
    """Cut out what lies within box (x, y, width, height) before any background
    that differs from it. The confidence is how little the result changes when
    the box is drawn a little larger."""
    x, y, w, h = box
    if x < 0 or y < 0 or w < 8 or h < 8 or x + w > picture.width or y + h > picture.height:
        raise MediaError(f"{picture.name}: the box {box} does not lie within {picture.width}x{picture.height}")
    if w * h > 0.95 * picture.width * picture.height:
        raise MediaError(f"{picture.name}: the box covers everything; draw it closer around the subject")
    rgb = _rgb(picture)
    first = _grabcut_mask(rgb, box)
    pad = max(2, min(w, h) // 40)
    x2, y2 = max(0, x - pad), max(0, y - pad)
    second = _grabcut_mask(rgb, (x2, y2, min(picture.width - x2, w + 2 * pad), min(picture.height - y2, h + 2 * pad)))
    both, either = (first & second).sum(), (first | second).sum()
    agreement = float(both / either) if either else 0.0
    if agreement < 0.5:
        raise MediaError(f"{picture.name}: subject and background are too alike for GrabCut (confidence {agreement:.2f}); draw the box closer, or use another picture")
    radius = max(2, round(max(picture.width, picture.height) / 400))
    inside, outside = ndimage.binary_erosion(first, iterations=radius), ~ndimage.binary_dilation(first, iterations=radius + 1)
    if not inside.any():
        raise MediaError(f"{picture.name}: nothing was found in the box {box}")
    alpha, colour = _matte(rgb, inside, outside, None)
    soft = np.clip(_guided(luminance(picture), alpha, radius, 1e-4), 0, 1)
    alpha = np.where(inside, 1, np.where(outside, 0, soft)).astype(np.float32)
    return _result(picture, colour, alpha, agreement, "GrabCut")


def _grabcut_mask(rgb: np.ndarray, box: tuple[int, int, int, int]) -> np.ndarray:
    scale = min(1.0, 900 / max(rgb.shape[:2]))
    small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else rgb
    small = np.rint(small[..., ::-1] * 255).astype(np.uint8)
    mask = np.zeros(small.shape[:2], np.uint8)
    cv2.setRNGSeed(7)
    rect = tuple(max(1, round(v * scale)) for v in box)
    cv2.grabCut(small, mask, rect, np.zeros((1, 65)), np.zeros((1, 65)), 5, cv2.GC_INIT_WITH_RECT)
    kept = np.isin(mask, (cv2.GC_FGD, cv2.GC_PR_FGD))
    labels, count = ndimage.label(kept)
    if count > 1:  # specks are noise
        sizes = ndimage.sum_labels(kept, labels, range(1, count + 1))
        kept = np.isin(labels, 1 + np.flatnonzero(sizes >= 0.05 * sizes.max()))
    kept = ndimage.binary_fill_holes(kept)
    if scale == 1:
        return kept
    grown = cv2.resize(kept.astype(np.float32), (rgb.shape[1], rgb.shape[0]), interpolation=cv2.INTER_LINEAR)
    return grown > 0.5
