"""Putting pictures on pictures: blend modes, placement to the pixel, shadows."""

from __future__ import annotations

import cv2
import numpy as np

from .errors import MediaError
from .picture import Picture

_MODES = {
    "normal": lambda b, s: s,
    "multiply": lambda b, s: b * s,
    "screen": lambda b, s: b + s - b * s,
    "overlay": lambda b, s: np.where(b <= 0.5, 2 * b * s, 1 - 2 * (1 - b) * (1 - s)),
    "hard-light": lambda b, s: np.where(s <= 0.5, 2 * b * s, 1 - 2 * (1 - b) * (1 - s)),
    "soft-light": lambda b, s: np.where(
        s <= 0.5,
        b - (1 - 2 * s) * b * (1 - b),
        b + (2 * s - 1) * (np.where(b <= 0.25, ((16 * b - 12) * b + 4) * b, np.sqrt(b)) - b),
    ),
    "darken": np.minimum,
    "lighten": np.maximum,
    "add": lambda b, s: np.minimum(b + s, 1),
    "subtract": lambda b, s: np.maximum(b - s, 0),
    "difference": lambda b, s: np.abs(b - s),
}
MODES = tuple(_MODES)


def _rgba(picture: Picture) -> np.ndarray:
    pixels = picture.rgb().pixels
    if pixels.shape[2] == 4:
        return pixels
    return np.concatenate([pixels, np.ones_like(pixels[..., :1])], axis=2)


def canvas(width: int, height: int, colour: tuple[float, ...] = (1, 1, 1)) -> Picture:
    """A plain picture; a fourth value is alpha."""
    return Picture(np.broadcast_to(np.float32(colour), (height, width, len(colour))).copy(), name="canvas")


def place(base: Picture, layer: Picture, x: int = 0, y: int = 0, mode: str = "normal", opacity: float = 1) -> Picture:
    """The layer on the base with its top left at (x, y), which may lie outside;
    what overhangs is cut off. Alpha of both is honoured (Porter-Duff over)."""
    if mode not in _MODES:
        raise MediaError(f"blend mode {mode!r} is not one of {', '.join(MODES)}")
    if not 0 <= opacity <= 1:
        raise MediaError(f"opacity is {opacity:g}; it goes from 0 to 1")
    out, top = _rgba(base).copy(), _rgba(layer)
    left, above = max(x, 0), max(y, 0)
    right, below = min(x + layer.width, base.width), min(y + layer.height, base.height)
    if left >= right or above >= below:
        raise MediaError(f"the layer at ({x}, {y}) lies wholly outside of {base.width}x{base.height}")
    part = out[above:below, left:right]
    top = top[above - y : below - y, left - x : right - x]
    ab, as_ = part[..., 3:], top[..., 3:] * np.float32(opacity)
    mixed = (1 - ab) * top[..., :3] + ab * _MODES[mode](part[..., :3], top[..., :3])
    alpha = as_ + ab * (1 - as_)
    colour = (as_ * mixed + (1 - as_) * ab * part[..., :3]) / np.maximum(alpha, 1e-6)
    out[above:below, left:right] = np.concatenate([colour, alpha], axis=2)
    return base.rgb().with_pixels(out if base.alpha is not None else out[..., :3])


def shadow(cutout: Picture, blur: float = 18, opacity: float = 0.35, offset: tuple[int, int] = (0, 14), colour: tuple[float, float, float] = (0, 0, 0)) -> Picture:
    """The soft shadow that a cut-out throws, as a layer of the cut-out's size.
    Put it below the cut-out with place."""
    if cutout.alpha is None:
        raise MediaError(f"{cutout.name}: a shadow needs a picture with alpha; cut it out first")
    shape = np.roll(cutout.alpha, (offset[1], offset[0]), axis=(0, 1))
    if offset[1] > 0:
        shape[: offset[1]] = 0
    elif offset[1] < 0:
        shape[offset[1] :] = 0
    if offset[0] > 0:
        shape[:, : offset[0]] = 0
    elif offset[0] < 0:
        shape[:, offset[0] :] = 0
    soft = cv2.GaussianBlur(shape, (0, 0), blur) if blur > 0 else shape
    rgb = np.broadcast_to(np.float32(colour), (*soft.shape, 3))
    return Picture(np.concatenate([rgb, soft[..., None] * np.float32(opacity)], axis=2).astype(np.float32), name="shadow")


def contact_shadow(cutout: Picture, opacity: float = 0.5) -> Picture:
    """The shadow where a thing stands on a table: flat, dark below the thing and
    fading away from it, as a layer of the cut-out's size."""
    if cutout.alpha is None:
        raise MediaError(f"{cutout.name}: a shadow needs a picture with alpha; cut it out first")
    rows, columns = np.flatnonzero(cutout.alpha.max(1) > 0.5), np.flatnonzero(cutout.alpha.max(0) > 0.5)
    foot = rows[-1]
    low = cutout.alpha[max(0, foot - (rows[-1] - rows[0]) // 8) : foot + 1].max(0)
    standing = np.flatnonzero(low > 0.5)
    middle, reach = (standing[0] + standing[-1]) / 2, max(4, (standing[-1] - standing[0]) / 2 * 1.08)
    depth = max(3, reach * 0.16)
    y, x = np.mgrid[0 : cutout.height, 0 : cutout.width].astype(np.float32)
    far = np.sqrt(((x - middle) / reach) ** 2 + ((y - foot) / depth) ** 2)
    soft = np.clip(1.25 - far, 0, 1) ** 1.6
    zero = np.zeros((*soft.shape, 3), np.float32)
    return Picture(np.concatenate([zero, (soft * opacity)[..., None]], axis=2), name="shadow")


def on_colour(cutout: Picture, colour: tuple[float, float, float] = (1, 1, 1), shadow_kind: str | None = "contact", margin: float = 0.0) -> Picture:
    """A cut-out on a plain colour, with a contact shadow, a soft one or none;
    margin is a share of the longer side added all round."""
    if cutout.alpha is None:
        raise MediaError(f"{cutout.name}: cut it out first")
    pad = round(margin * max(cutout.width, cutout.height))
    padded = cutout.with_pixels(np.pad(cutout.pixels, ((pad, pad), (pad, pad), (0, 0))))
    out = canvas(padded.width, padded.height, colour)
    if shadow_kind == "contact":
        out = place(out, contact_shadow(padded))
    elif shadow_kind == "soft":
        out = place(out, shadow(padded))
    elif shadow_kind is not None:
        raise MediaError(f"shadow {shadow_kind!r} is not contact, soft or None")
    out = place(out, padded)
    return cutout.rgb().with_pixels(out.pixels)
