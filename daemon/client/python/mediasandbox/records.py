"""What the daemon's answers hold. Fields that a newer daemon adds are ignored."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

__all__ = [
    "CellRecord", "ChatRecord", "Command", "CommandProgress", "Event", "FileInfo", "FileObject", "InputFile", "Output",
    "OutputChunk", "Provenance", "Replay", "Sandbox", "Skipped", "Turn", "decode",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """One stream of a command: bytes written, and how many of them were dropped in the middle."""

    bytes: int = 0
    truncated: bool = False
    dropped_bytes: int = 0


@dataclass(frozen=True)
class FileObject:
    """The file of a cell. Times in seconds, sizes in bytes, dimensions in pixels."""

    path: str
    file_name: str
    file_size: int
    content_type: str
    sha256: str
    url: str = ""
    width: int = 0
    height: int = 0
    duration: float = 0.0
    fps: float = 0.0
    video_codec: str = ""
    audio_codec: str = ""
    pixel_format: str = ""
    has_alpha: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True)
class CellRecord:
    """One finished output file."""

    ordinal: int
    revision: int
    pill: str
    state: str
    chat: str
    file: FileObject
    created_at: datetime
    command: str = ""
    label: str = ""
    previews: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Skipped:
    """An output that did not become a cell."""

    path: str
    reason: str


@dataclass(frozen=True)
class InputFile:
    """A file below /inputs."""

    name: str
    sha256: str
    size: int
    content_type: str = ""
    cell: int = 0
    url: str = ""
    kept: bool = False


@dataclass(frozen=True)
class CommandProgress:
    """How far a command's media work is, as its own programs tell it."""

    command: str
    by: str
    percent: float | None = None
    frame: int = 0
    fps: float = 0.0
    speed: float = 0.0
    time: float = 0.0
    eta: float | None = None
    stage: str = ""


@dataclass(frozen=True)
class Command:
    """One process tree run in a sandbox."""

    id: str
    chat: str
    state: str
    created_at: datetime
    turn: str = ""
    dir: str = ""
    label: str = ""
    argv: list[str] = field(default_factory=list)
    shell: str = ""
    python: str = ""
    inputs: list[str] = field(default_factory=list)
    input_files: list[InputFile] = field(default_factory=list)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    timeout_seconds: float = 0.0
    turn_left_seconds: float = 0.0
    continues: bool = False
    queue_place: int = 0
    background_processes: int = 0
    progress: CommandProgress | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    files_lost: bool = False
    cells: list[CellRecord] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the state is a last one."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True)
class Turn:
    """One exchange of a chat, with its budget of work in seconds."""

    id: str
    budget_seconds: float
    used_seconds: float
    left_seconds: float
    opened_at: datetime
    closed_at: datetime | None = None
    implicit: bool = False


@dataclass(frozen=True)
class Sandbox:
    """The live sandbox of a chat."""

    id: str
    created_at: datetime
    idle_since: datetime | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True)
class ChatRecord:
    """One conversation of an account."""

    id: str
    account: str
    network: str
    created_at: datetime
    cells: int
    retention: str
    title: str = ""
    sandbox: Sandbox | None = None
    turn: Turn | None = None
    skills: list[str] = field(default_factory=list)
    last_event: int = 0


@dataclass(frozen=True)
class FileInfo:
    """An entry of a sandbox's files."""

    path: str
    size: int
    mode: str
    modified: datetime
    dir: bool = False


@dataclass(frozen=True)
class Event:
    """Something that happened in a chat."""

    id: int
    type: str
    time: datetime
    command: Command | None = None
    cell: CellRecord | None = None
    message: str = ""
    refusal: dict[str, Any] | None = None
    progress: dict[str, Any] | None = None
    work: CommandProgress | None = None


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a command's output; offset counts the bytes of the stream before it."""

    stream: str
    offset: int
    data: bytes


@dataclass(frozen=True)
class Provenance:
    """How a cell's file was made, as far as that decides its bytes."""

    command: str
    dir: str
    env: dict[str, str]
    inputs: list[InputFile]
    image: str
    cpus: float
    network: str
    product: str
    argv: list[str] = field(default_factory=list)
    shell: str = ""
    python: str = ""
    args: list[str] = field(default_factory=list)
    earlier_commands: int = 0


@dataclass(frozen=True)
class Replay:
    """What came of running a cell's command again in a fresh sandbox without a network."""

    cell: int
    revision: int
    verdict: str
    state: str
    same_image: bool
    seconds: float
    reason: str = ""
    exit_code: int | None = None
    first_byte: int | None = None
    first_frame: int | None = None
    frames: int = 0
    psnr: float | None = None

    @property
    def identical(self) -> bool:
        """Whether the same bytes came again."""
        return self.verdict == "identical"


def decode(kind: type[T], value: Any) -> T:
    """Makes a record, a list of records or a plain value from decoded JSON."""
    return typing.cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if value is None:
        return None
    if type(None) in args:
        return _decode(next(a for a in args if a is not type(None)), value)
    if origin is list:
        return [_decode(args[0], v) for v in value]
    if kind is datetime:
        return _time(value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decode(hint, value[name]) for name, hint in hints.items() if value.get(name) is not None})
    return value


def _hints(kind: Any) -> dict[str, Any]:
    known = _HINTS.get(kind)
    if known is None:
        known = _HINTS[kind] = typing.get_type_hints(kind)
    return known


_HINTS: dict[Any, dict[str, Any]] = {}


def _time(text: str) -> datetime:
    """Reads RFC 3339, with more digits than Python 3.10 knows."""
    text = text.replace("Z", "+00:00")
    if "." in text:
        head, tail = text.split(".", 1)
        digits = tail[: next((i for i, c in enumerate(tail) if not c.isdigit()), len(tail))]
        text = f"{head}.{digits[:6].ljust(6, '0')}{tail[len(digits):]}"
    return datetime.fromisoformat(text)
