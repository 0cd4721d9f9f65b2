"""Tonal edits. Each takes a Picture and returns one; alpha is never touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.interpolate import PchipInterpolator

from .errors import MediaError
from .picture import Picture

# sRGB's luminance weights.
_LUMA = np.float32([0.2126, 0.7152, 0.0722])


def to_linear(values: np.ndarray) -> np.ndarray:
    """sRGB-encoded values as linear light."""
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4).astype(np.float32)


def to_encoded(values: np.ndarray) -> np.ndarray:
    """Linear light as sRGB-encoded values."""
    values = np.clip(values, 0, None)
    return np.where(values <= 0.0031308, values * 12.92, 1.055 * values ** (1 / 2.4) - 0.055).astype(np.float32)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise MediaError(f"{name} is {value:g}; it goes from {low:g} to {high:g}")


def luminance(picture: Picture) -> np.ndarray:
    """Encoded luminance, height x width."""
    colour = picture.colour
    return colour[..., 0] if colour.shape[2] == 1 else to_encoded(to_linear(colour) @ _LUMA)


def exposure(picture: Picture, stops: float) -> Picture:
    """As if the camera had taken in 2**stops times the light."""
    _within("stops", stops, -8, 8)
    return picture.with_colour(to_encoded(to_linear(picture.colour) * 2.0**stops))


def brightness(picture: Picture, amount: float) -> Picture:
    """Lift or lower the midtones; black and white stay. -100 to 100."""
    _within("amount", amount, -100, 100)
    return picture.with_colour(picture.colour ** np.float32(2 ** (-amount / 100)))


def contrast(picture: Picture, amount: float, pivot: float = 0.5) -> Picture:
    """Steepen (or flatten) the tones around pivot along an S that keeps black
    and white. -100 to 100."""
    _within("amount", amount, -100, 100)
    power = 2 ** (amount / 100)
    c = picture.colour
    low = pivot * (np.clip(c, 0, pivot) / pivot) ** power
    high = 1 - (1 - pivot) * (np.clip(1 - c, 0, 1 - pivot) / (1 - pivot)) ** power
    return picture.with_colour(np.where(c < pivot, low, high))


def levels(picture: Picture, black: float = 0, white: float = 1, gamma: float = 1) -> Picture:
    """Make black the darkest and white the lightest value; gamma above 1 lifts
    the midtones."""
    if not 0 <= black < white <= 1:
        raise MediaError(f"black {black:g} has to be below white {white:g}, both within 0 to 1")
    return picture.with_colour(np.clip((picture.colour - black) / (white - black), 0, 1) ** (1 / gamma))


def curves(picture: Picture, points: Sequence[tuple[float, float]], channel: str = "rgb") -> Picture:
    """Bend tones through (in, out) points, 0 to 1, without overshoot. channel is
    rgb, red, green or blue."""
    names = {"rgb": slice(None), "red": slice(0, 1), "green": slice(1, 2), "blue": slice(2, 3)}
    if channel not in names:
        raise MediaError(f"channel {channel!r} is not one of {', '.join(names)}")
    points = sorted(({0.0: 0.0, 1.0: 1.0} | dict(points)).items())
    xs, ys = zip(*points)
    curve = PchipInterpolator(xs, ys)
    colour = picture.colour.copy()
    colour[..., names[channel]] = curve(colour[..., names[channel]])
    return picture.with_colour(colour)


def white_balance(picture: Picture, grey: tuple[int, int, int, int] | None = None) -> Picture:
    """Make a grey card neutral. grey is its box (x, y, width, height); without
    one, the mean of all that is neither clipped nor nearly black is taken."""
    if picture.colour.shape[2] != 3:
        raise MediaError(f"{picture.name}: a grey picture has no white balance")
    linear = to_linear(picture.colour)
    if grey is not None:
        x, y, w, h = grey
        patch = linear[y : y + h, x : x + w].reshape(-1, 3)
        if x < 0 or y < 0 or not len(patch):
            raise MediaError(f"{picture.name}: the grey box {grey} lies outside of {picture.width} x {picture.height}")
    else:
        patch = linear.reshape(-1, 3)
        lit = (picture.colour.max(2) < 0.98) & (picture.colour.min(2) > 0.02)
        patch = patch[lit.ravel()] if lit.any() else patch
    mean = patch.mean(axis=0)
    if mean.min() <= 1e-4:
        raise MediaError(f"{picture.name}: the grey area is black in one channel; choose a lighter one")
    return picture.with_colour(to_encoded(linear * (mean @ _LUMA / mean)))


# Oklab, where a change of chroma keeps hue and lightness.
_TO_LMS = np.float32([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]])
_TO_LAB = np.float32([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099], [0.0259040371, 0.7827717662, -0.8086757660]])


def to_oklab(encoded: np.ndarray) -> np.ndarray:
    return np.cbrt(to_linear(encoded) @ _TO_LMS.T) @ _TO_LAB.T


def from_oklab(lab: np.ndarray) -> np.ndarray:
    return to_encoded((lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T)


def saturation(picture: Picture, amount: float) -> Picture:
    """Strengthen or weaken colours at constant hue and lightness. -100 (grey) to
    100 (double)."""
    _within("amount", amount, -100, 100)
    if picture.colour.shape[2] == 1:
        return picture
    lab = to_oklab(picture.colour)
    lab[..., 1:] *= 1 + amount / 100
    return picture.with_colour(from_oklab(lab))


def shadows_highlights(picture: Picture, shadows: float = 0, highlights: float = 0) -> Picture:
    """Open shadows (0 to 100) and bring highlights back (0 to 100), each with a
    mask that follows edges, so that no halo appears."""
    _within("shadows", shadows, 0, 100)
    _within("highlights", highlights, 0, 100)
    light = luminance(picture)
    base = _guided(light, light, max(8, picture.width // 60), 0.01)
    gain = 1 + 1.2 * shadows / 100 * np.clip(1 - base / 0.5, 0, 1) ** 1.5
    gain -= 0.5 * highlights / 100 * np.clip((base - 0.5) / 0.5, 0, 1) ** 1.5
    return picture.with_colour(picture.colour * gain[..., None])


def sharpen(picture: Picture, amount: float = 60, radius: float = 1.2, threshold: float = 0.01) -> Picture:
    """Unsharp mask on luminance only: no coloured edges. amount in per cent,
    radius in pixels; differences below threshold (noise) stay."""
    import cv2

    _within("amount", amount, 0, 500)
    light = luminance(picture)
    detail = light - cv2.GaussianBlur(light, (0, 0), radius)
    detail *= np.clip((np.abs(detail) - threshold) / max(threshold, 1e-6), 0, 1)
    return picture.with_colour(picture.colour + (detail * amount / 100)[..., None])


def denoise(picture: Picture, strength: float = 30) -> Picture:
    """Smooth noise and keep edges. 0 to 100; 30 suits a phone at dusk."""
    _within("strength", strength, 0, 100)
    if strength == 0:
        return picture
    colour = picture.colour
    guide = luminance(picture)
    eps = (strength / 100 * 0.12) ** 2
    smooth = np.stack([_guided(guide, colour[..., i], 3, eps) for i in range(colour.shape[2])], axis=2)
    return picture.with_colour(smooth)


def _guided(guide: np.ndarray, values: np.ndarray, radius: int, eps: float) -> np.ndarray:
    """A guided filter: smooth where the guide is, sharp where it has edges."""
    import cv2

    def mean(array: np.ndarray) -> np.ndarray:
        return cv2.boxFilter(np.float32(array), -1, (2 * radius + 1, 2 * radius + 1), borderType=cv2.BORDER_REFLECT)

    mean_g, mean_v = mean(guide), mean(values)
    slope = (mean(guide * values) - mean_g * mean_v) / (mean(guide * guide) - mean_g**2 + eps)
    return mean(slope) * guide + mean(mean_v - slope * mean_g)


def stats(picture: Picture) -> dict[str, float]:
    """Percentiles of luminance (0 to 255) and the share of clipped pixels (%)."""
    light = luminance(picture)
    found = {f"p{p}": float(v) * 255 for p, v in zip((1, 5, 50, 95, 99), np.percentile(light, (1, 5, 50, 95, 99)))}
    colour = picture.colour
    found["black%"] = float((colour.max(2) <= 0.5 / 255).mean() * 100)
    found["white%"] = float((colour.min(2) >= 1 - 0.5 / 255).mean() * 100)
    return found


def report(before: Picture, after: Picture) -> str:
    """Both pictures' numbers, for the reader: print it after an edit."""
    rows = [("", stats(before).keys())] + [(n, [f"{v:.1f}" for v in stats(p).values()]) for n, p in (("before", before), ("after", after))]
    return "\n".join(f"{name:<7}" + "".join(f"{v:>8}" for v in values) for name, values in rows)
