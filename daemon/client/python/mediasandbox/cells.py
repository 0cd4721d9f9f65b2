"""A chat's cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .records import CellRecord, FileObject, Provenance, Replay, decode
from .streams import save, whole

if TYPE_CHECKING:
    from .client import Chat

__all__ = ["Cell"]


class Cell:
    """A finished output file of a chat."""

    def __init__(self, chat: Chat, record: CellRecord) -> None:
        self.chat, self.record, self.ordinal = chat, record, record.ordinal

    def __repr__(self) -> str:
        return f"Cell(#{self.ordinal} {self.pill} {self.file.file_name!r})"

    def __str__(self) -> str:
        """As a later command names it among its inputs."""
        return f"#{self.ordinal}"

    @property
    def pill(self) -> str:
        """video-edit, frame-extract, image-edit, audio-edit or file."""
        return self.record.pill

    @property
    def file(self) -> FileObject:
        """What the file is."""
        return self.record.file

    def save(self, to: str | os.PathLike[str] | BinaryIO | None = None) -> Path | None:
        """Writes the file to a path, a directory or an open file, whole or not at all.

        Without a target it goes to the working directory under its own name. Returns where it is.
        """
        if to is not None and not isinstance(to, (str, os.PathLike)):
            with self.open() as answer:
                save(answer, to)
            return None
        target = Path(to) if to is not None else Path(self.file.file_name)
        if target.is_dir():
            target /= Path(self.file.file_name).name
        with self.open() as answer:
            save(answer, target)
        return target

    def open(self) -> Any:
        """The file as a stream of bytes, to be closed."""
        return self.chat.client.transport.open("GET", self.chat._path("cells", self.ordinal, "content"))

    def read(self) -> bytes:
        """The file's bytes."""
        with self.open() as answer:
            return whole(answer)

    def preview(self, kind: str = "thumb") -> bytes:
        """A small picture of it, a WebP: one of record.previews."""
        with self.chat.client.transport.open("GET", self.chat._path("cells", self.ordinal, "preview"), query={"kind": kind}) as answer:
            return whole(answer)

    def provenance(self) -> Provenance:
        """How it was made."""
        return decode(Provenance, self.chat._call("GET", self.chat._path("cells", self.ordinal, "provenance")))

    def replay(self) -> Replay:
        """Runs the command that made it again, in a fresh sandbox without a network, and compares the bytes."""
        return decode(Replay, self.chat._call("POST", self.chat._path("cells", self.ordinal, "replay")))
