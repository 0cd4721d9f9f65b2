"""Answers of the daemon as files."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from .errors import StreamCut

__all__ = ["save", "whole"]


def whole(answer: Any) -> bytes:
    content: bytes = answer.read()
    return content


def _copy(answer: Any, to: BinaryIO) -> None:
    shutil.copyfileobj(answer, to)
    if answer.length:  # bytes that were announced and did not come
        raise StreamCut(f"the answer was cut off {answer.length} bytes before its end", retryable=True)


def save(answer: Any, to: str | os.PathLike[str] | BinaryIO) -> None:
    """Copies a stream; a path gets the whole file or none."""
    if not isinstance(to, (str, os.PathLike)):
        _copy(answer, to)
        return
    target = Path(to)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb") as f:
            _copy(answer, f)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
