"""Crop, straighten, correct perspective, resize. Pixels are moved once, in
linear light where they are mixed."""

from __future__ import annotations

import math

import cv2
import numpy as np
from PIL import Image

from .errors import MediaError
from .picture import Picture
from .tone import luminance, to_encoded, to_linear

cv2.setNumThreads(1)  # one thread: the same bytes on every machine


def crop(picture: Picture, x: int, y: int, width: int, height: int) -> Picture:
    """Exactly this box, in pixels from the top left."""
    if x < 0 or y < 0 or width < 1 or height < 1 or x + width > picture.width or y + height > picture.height:
        raise MediaError(f"{picture.name}: the box {width}x{height}+{x}+{y} does not lie within {picture.width}x{picture.height}")
    return picture.with_pixels(picture.pixels[y : y + height, x : x + width])


def parse_aspect(aspect: str | float) -> float:
    """'16:9' or 1.78 as width over height."""
    try:
        if isinstance(aspect, str) and ":" in aspect:
            across, down = aspect.split(":")
            value = float(across) / float(down)
        else:
            value = float(aspect)
    except (ValueError, ZeroDivisionError):
        value = 0
    if not 0.05 < value < 20:
        raise MediaError(f"aspect {aspect!r} is not like 16:9, 4:5 or 1.91")
    return value


def crop_aspect(picture: Picture, aspect: str | float, focus: tuple[float, float] = (0.5, 0.5)) -> Picture:
    """The largest box of this aspect around focus (0..1 across and down)."""
    want = parse_aspect(aspect)
    width = min(picture.width, round(picture.height * want))
    height = min(picture.height, round(picture.width / want))
    x = round(min(max(focus[0] * picture.width - width / 2, 0), picture.width - width))
    y = round(min(max(focus[1] * picture.height - height / 2, 0), picture.height - height))
    return crop(picture, x, y, max(width, 1), max(height, 1))


def _mixable(picture: Picture) -> np.ndarray:
    """Pixels in linear light, premultiplied by alpha."""
    colour = to_linear(picture.colour)
    if picture.alpha is None:
        return colour
    return np.concatenate([colour * picture.pixels[..., -1:], picture.pixels[..., -1:]], axis=2)


def _unmixed(picture: Picture, mixed: np.ndarray) -> Picture:
    if picture.alpha is None:
        return picture.with_pixels(to_encoded(mixed))
    alpha = np.clip(mixed[..., -1:], 0, 1)
    colour = to_encoded(mixed[..., :-1] / np.maximum(alpha, 1e-6))
    return picture.with_pixels(np.concatenate([colour, alpha], axis=2))


def resize(picture: Picture, width: int | None = None, height: int | None = None, fit: str = "contain") -> Picture:
    """Resize with Lanczos in linear light. With one side given the other
    follows; with both, fit is contain (no larger than), cover (fill, cropping
    the middle) or exact (distort)."""
    if not (width or height) or (width or 1) < 1 or (height or 1) < 1:
        raise MediaError("resize needs a width or a height of at least 1 pixel")
    if fit not in ("contain", "cover", "exact"):
        raise MediaError(f"fit {fit!r} is not contain, cover or exact")
    if fit == "cover" and width and height:
        picture = crop_aspect(picture, width / height)
    elif fit == "contain" or not (width and height):
        scale = min((width or 10**9) / picture.width, (height or 10**9) / picture.height)
        width, height = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    mixed = _mixable(picture)
    planes = [
        np.asarray(Image.fromarray(np.ascontiguousarray(mixed[..., i])).resize((width, height), Image.Resampling.LANCZOS))
        for i in range(mixed.shape[2])
    ]
    return _unmixed(picture, np.stack(planes, axis=2))


def _warp(picture: Picture, matrix: np.ndarray, width: int, height: int) -> Picture:
    """Moves pixels at twice the size and averages: thin lines stay smooth."""
    double = np.float64([[2, 0, 0.5], [0, 2, 0.5], [0, 0, 1]]) @ matrix
    mixed = cv2.warpPerspective(_mixable(picture), double, (2 * width, 2 * height), flags=cv2.INTER_LANCZOS4, borderMode=cv2.BORDER_REPLICATE)
    mixed = cv2.resize(mixed, (width, height), interpolation=cv2.INTER_AREA)
    return _unmixed(picture, mixed.reshape(height, width, -1))


def rotate(picture: Picture, degrees: float, crop_edges: bool = True) -> Picture:
    """Turn clockwise by degrees about the middle. crop_edges keeps the largest
    box of the picture's own aspect without empty corners; else the size stays
    and corners repeat the edge."""
    if degrees % 90 == 0:
        return picture.with_pixels(np.rot90(picture.pixels, -int(degrees // 90)))
    w, h = picture.width, picture.height
    matrix = np.vstack([cv2.getRotationMatrix2D(((w - 1) / 2, (h - 1) / 2), -degrees, 1), [0, 0, 1]])
    turned = _warp(picture, matrix, w, h)
    if not crop_edges:
        return turned
    a = math.radians(abs(degrees) % 180)
    a = min(a, math.pi - a)
    scale = min(w / (w * math.cos(a) + h * math.sin(a)), h / (w * math.sin(a) + h * math.cos(a)))
    cw, ch = max(1, math.floor(w * scale)), max(1, math.floor(h * scale))
    return crop(turned, (w - cw) // 2, (h - ch) // 2, cw, ch)


def detect_tilt(picture: Picture, most: float = 20) -> tuple[float, float]:
    """How many degrees the picture leans clockwise, judged by its edges that
    should be level or upright (horizon, walls, lines of text), and how sure
    that is (0 to 1)."""
    light = luminance(picture)
    scale = min(1.0, 1600 / max(light.shape))
    if scale < 1:
        light = cv2.resize(light, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    light = cv2.GaussianBlur(light, (0, 0), 2)
    gx, gy = cv2.Scharr(light, cv2.CV_32F, 1, 0), cv2.Scharr(light, cv2.CV_32F, 0, 1)
    inner = (slice(8, -8), slice(8, -8))
    y, x = np.mgrid[0 : light.shape[0], 0 : light.shape[1]][:, 8:-8, 8:-8].reshape(2, -1).astype(np.float64)
    gx, gy = gx[inner].ravel().astype(np.float64), gy[inner].ravel().astype(np.float64)
    strength = gx**2 + gy**2
    lean = (np.degrees(np.arctan2(gy, gx)) + 45) % 90 - 45
    usable = (np.abs(lean) < most) & (strength > strength.max(initial=0) * 0.01)
    if usable.sum() < 50:
        return 0.0, 0.0
    bins = np.arange(-most, most + 0.1, 0.1)
    found, _ = np.histogram(lean[usable], bins, weights=strength[usable])
    found = np.convolve(found, np.hanning(31), "same")
    angle = float(bins[found.argmax()] + 0.05)
    near = usable & (np.abs(lean - angle) < 4)
    share = float(strength[usable & (np.abs(lean - angle) < 2)].sum() / strength.sum())
    upright = np.abs(gx) > np.abs(gy)
    for reach, step in ((2.0, 0.1), (0.15, 0.02)):
        tries = np.arange(angle - reach, angle + reach + step / 2, step)
        scores = [_lined_up(x[near], y[near], strength[near], upright[near], t) for t in tries]
        angle = float(tries[int(np.argmax(scores))])
    return round(angle, 3), min(1.0, share * 1.5)


def _lined_up(x: np.ndarray, y: np.ndarray, weight: np.ndarray, upright: np.ndarray, degrees: float) -> float:
    """How sharply edges fall onto lines that lean by degrees."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    across = np.where(upright, x * cos + y * sin, y * cos - x * sin)
    score = 0.0
    for kind in (upright, ~upright):
        if kind.any():
            place = across[kind]
            found, _ = np.histogram(place, np.arange(place.min(), place.max() + 2), weights=weight[kind])
            score += float((found**2).sum())
    return score


def straighten(picture: Picture, degrees: float | None = None) -> Picture:
    """Make level what leans: by degrees (clockwise lean), or as detect_tilt
    finds. Refuses when the picture shows no clear direction."""
    if degrees is None:
        degrees, sure = detect_tilt(picture)
        if sure < 0.15:
            raise MediaError(f"{picture.name}: no clear horizon or vertical was found (confidence {sure:.2f}); give the angle in degrees")
    return picture if abs(degrees) < 0.02 else rotate(picture, -degrees)


Corners = list[tuple[float, float]]


def detect_document(picture: Picture) -> Corners:
    """The corners of the largest four-sided sheet: top left, top right, bottom
    right, bottom left. Refuses when there is none."""
    light = np.rint(luminance(picture) * 255).astype(np.uint8)
    scale = min(1.0, 1000 / max(light.shape))
    small = cv2.resize(light, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (5, 5), 0)
    _, paper = cv2.threshold(small, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    edges = cv2.dilate(cv2.Canny(small, 40, 120), np.ones((3, 3), np.uint8))
    best, best_area = None, 0.1 * small.size
    for mask in (paper, edges):
        for contour in cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
            hull = cv2.convexHull(contour)
            quad = cv2.approxPolyDP(hull, 0.02 * cv2.arcLength(hull, True), True)
            area = cv2.contourArea(quad)
            if len(quad) == 4 and best_area < area < 0.97 * small.size:
                best, best_area = quad.reshape(4, 2) / scale, area
    if best is None:
        raise MediaError(f"{picture.name}: no sheet with four corners was found; give the corners, or a picture with the whole sheet in view")
    total, difference = best.sum(1), best[:, 0] - best[:, 1]
    order = [total.argmin(), difference.argmax(), total.argmax(), difference.argmin()]
    return [tuple(map(float, best[i])) for i in order]


def perspective(picture: Picture, corners: Corners, width: int | None = None, height: int | None = None) -> Picture:
    """Make the four-sided area upright. corners go clockwise from the top left;
    the size follows from the longer sides unless it is given."""
    if len(corners) != 4:
        raise MediaError("perspective needs four corners: top left, top right, bottom right, bottom left")
    points = np.float32(corners)
    if cv2.contourArea(points) < 16 or not cv2.isContourConvex(points):
        raise MediaError(f"the corners {corners} do not make a four-sided area; give them clockwise from the top left")
    side = lambda a, b: float(np.linalg.norm(points[a] - points[b]))
    width = width or max(1, round(max(side(0, 1), side(3, 2))))
    height = height or max(1, round(max(side(0, 3), side(1, 2))))
    target = np.float32([(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)])
    return _warp(picture, cv2.getPerspectiveTransform(points, target), width, height)
