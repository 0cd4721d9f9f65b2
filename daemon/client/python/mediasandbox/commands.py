"""A chat's commands, running and ended."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from .cells import Cell
from .errors import CommandFailed, StreamCut
from .records import Command, OutputChunk, decode
from .transport import BROKEN, events

if TYPE_CHECKING:
    from .client import Chat

__all__ = ["Content", "Result", "Running"]

# How long one request waits for a command's end, in seconds.
_WAIT_SLICE = 60

Content = bytes | str | BinaryIO


class Running:
    """A command that was started. record is as it was when it was last looked at."""

    def __init__(self, chat: Chat, record: Command) -> None:
        self.chat, self.record, self.id = chat, record, record.id

    def __repr__(self) -> str:
        return f"Running({self.id!r}, {self.record.state!r})"

    def output(self) -> Iterator[OutputChunk]:
        """Follows both streams from their beginning to the command's end; record is that of the end then.

        A daemon that restarts is waited for, and no byte is missed or told twice.
        """
        offsets = {"stdout": 0, "stderr": 0}
        while True:
            try:
                yield from self._output(offsets)
                return
            except (StreamCut, *BROKEN):
                self.chat.client.transport.again(self.chat.client.info, met=True)

    def _output(self, offsets: dict[str, int]) -> Iterator[OutputChunk]:
        path = self.chat._path("commands", self.id, "output")
        with self.chat.client.transport.open("GET", path, query={**offsets, "follow": "true"}) as answer:
            for name, data in events(answer):
                if name == "command":
                    self.record = decode(Command, data)
                    return
                chunk = OutputChunk(data["stream"], data["offset"], base64.b64decode(data["data"] or ""))
                offsets[chunk.stream] = chunk.offset + len(chunk.data)
                yield chunk
        raise StreamCut("the output was cut off", retryable=True)

    def wait(self, turn: str = "") -> Command:
        """Waits for the end. In a turn that is over first, the record comes back with continues set."""
        while True:
            now = self.chat.client.transport.again(
                lambda: self.chat._call("GET", self.chat._path("commands", self.id), query={"wait": _WAIT_SLICE, "turn": turn}))
            self.record = decode(Command, now)
            if self.record.ended or self.record.continues:
                return self.record

    def result(self, on_output: Callable[[OutputChunk], None] | None = None) -> Result:
        """Waits for the end and keeps what was printed."""
        kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        for chunk in self.output():
            kept[chunk.stream].append(chunk.data)
            if on_output:
                on_output(chunk)
        return Result(self.chat, self.record, b"".join(kept["stdout"]), b"".join(kept["stderr"]))

    def cancel(self) -> None:
        """Ends the command and all its descendants."""
        self.signal(0)

    def signal(self, number: int) -> None:
        """Sends a signal to the main process; 0 cancels."""
        self.chat._call("POST", self.chat._path("commands", self.id, "kill"), query={"signal": number})

    def feed(self, content: Content | Iterable[bytes]) -> None:
        """Sends the input of a command that was started with stream_stdin, and then its end."""
        if isinstance(content, str):
            content = content.encode()
        body = content if isinstance(content, bytes) or hasattr(content, "read") else iter(content)
        self.chat.client.transport.open("POST", self.chat._path("commands", self.id, "stdin"), body=body).close()  # type: ignore[arg-type]


class Result:
    """A command that has ended, with what it printed. Output in the middle of a flood may be dropped: see record."""

    def __init__(self, chat: Chat, record: Command, stdout: bytes, stderr: bytes) -> None:
        self.chat, self.record, self.stdout_bytes, self.stderr_bytes = chat, record, stdout, stderr

    def __repr__(self) -> str:
        why = f", reason={self.record.reason!r}" if self.record.reason else ""
        return f"Result({self.state!r}, exit_code={self.exit_code!r}{why}, cells={self.cells!r})"

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.record.state == "succeeded"

    @property
    def state(self) -> str:
        """succeeded, failed, timed_out, canceled, oom_killed or lost."""
        return self.record.state

    @property
    def exit_code(self) -> int | None:
        """Of the main process; None when it did not end by itself."""
        return self.record.exit_code

    @property
    def stdout(self) -> str:
        """What it printed, as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it printed to stderr, as text."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def cells(self) -> list[Cell]:
        """The cells that came of it."""
        return [Cell(self.chat, c) for c in self.record.cells]

    def check(self) -> Result:
        """Returns itself, or raises CommandFailed when the command did not succeed."""
        if not self.ok:
            raise CommandFailed(self.record, self.stdout_bytes, self.stderr_bytes)
        return self
