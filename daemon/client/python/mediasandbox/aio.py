"""The same client for asyncio.

Each call runs in a thread of the loop's executor; a task that is canceled ends its request at once, but not the command that
it started: cancel that. Names and arguments are those of the client, where they are described.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from . import cells, client, commands
from .records import ChatRecord, Command, Event, FileInfo, OutputChunk, Provenance, Replay, Turn
from .transport import Abortable

__all__ = ["AsyncCell", "AsyncChat", "AsyncResult", "AsyncRunning"]

T = TypeVar("T")


class _Caller:
    """Makes blocking calls, each with a transport of its own that a cancel ends."""

    def __init__(self, socket: str | None, account: str | None) -> None:
        self.socket, self.account = socket, account

    def client(self) -> client.Client:
        c = client.Client(self.socket, self.account)
        c.transport = Abortable(self.socket, self.account)
        return c

    async def call(self, f: Callable[[client.Client], T]) -> T:
        c = self.client()
        assert isinstance(c.transport, Abortable)
        try:
            return await asyncio.to_thread(f, c)
        except asyncio.CancelledError:
            c.transport.abort()
            raise
        finally:
            c.transport.close()

    async def follow(self, f: Callable[[client.Client], Iterator[T]]) -> AsyncIterator[T]:
        c = self.client()
        assert isinstance(c.transport, Abortable)
        source = f(c)
        end = object()
        try:
            while (item := await asyncio.to_thread(next, source, end)) is not end:
                yield item  # type: ignore[misc]
        finally:
            c.transport.abort()


class AsyncChat:
    """A chat; see mediasandbox.Chat. It is made, if there is none, when it is entered."""

    def __init__(self, id: str | None = None, *, socket: str | None = None, account: str | None = None, **wish: Any) -> None:
        self.id, self._wish = id or "", wish
        self._caller = _Caller(socket, account)

    async def __aenter__(self) -> AsyncChat:
        made = await self._caller.call(lambda c: client.Chat(self.id or None, client=c, **self._wish))
        self.id = made.id
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leaves the chat as it is."""

    async def _do(self, f: Callable[[client.Chat], T]) -> T:
        return await self._caller.call(lambda c: f(client.Chat(self.id, client=c, create=False)))

    async def record(self) -> ChatRecord:
        return await self._do(lambda chat: chat.record())

    async def delete(self) -> None:
        await self._do(lambda chat: chat.delete())

    async def open_turn(self, id: str = "") -> Turn:
        return await self._do(lambda chat: chat.open_turn(id))

    async def turns(self) -> list[Turn]:
        return await self._do(lambda chat: chat.turns())

    async def run(self, argv: Iterable[str] | str, **options: Any) -> AsyncResult:
        return AsyncResult(self, await self._do(lambda chat: chat.run(argv, **options)))

    async def run_python(self, source: str, *args: str, **options: Any) -> AsyncResult:
        return AsyncResult(self, await self._do(lambda chat: chat.run_python(source, *args, **options)))

    async def start(self, argv: Iterable[str] | str, **options: Any) -> AsyncRunning:
        return AsyncRunning(self, (await self._do(lambda chat: chat.start(argv, **options))).record)

    async def start_python(self, source: str, *args: str, **options: Any) -> AsyncRunning:
        return AsyncRunning(self, (await self._do(lambda chat: chat.start_python(source, *args, **options))).record)

    async def commands(self) -> list[Command]:
        return await self._do(lambda chat: chat.commands())

    async def command(self, id: str) -> AsyncRunning:
        return AsyncRunning(self, (await self._do(lambda chat: chat.command(id))).record)

    async def cells(self, **query: str) -> list[AsyncCell]:
        return [AsyncCell(self, c) for c in await self._do(lambda chat: chat.cells(**query))]

    async def cell(self, ordinal: int) -> AsyncCell:
        return AsyncCell(self, await self._do(lambda chat: chat.cell(ordinal)))

    async def export(self, to: str | os.PathLike[str] | BinaryIO, **query: str) -> None:
        await self._do(lambda chat: chat.export(to, **query))

    async def put(self, content: commands.Content | os.PathLike[str], path: str = "") -> FileInfo:
        return await self._do(lambda chat: chat.put(content, path))

    async def get(self, path: str, to: str | os.PathLike[str] | BinaryIO) -> None:
        await self._do(lambda chat: chat.get(path, to))

    async def read(self, path: str) -> bytes:
        return await self._do(lambda chat: chat.read(path))

    async def files(self, path: str = "/workspace") -> list[FileInfo]:
        return await self._do(lambda chat: chat.files(path))

    async def stat(self, path: str) -> FileInfo:
        return await self._do(lambda chat: chat.stat(path))

    async def move(self, source: str, to: str, *, replace: bool = False) -> FileInfo:
        return await self._do(lambda chat: chat.move(source, to, replace=replace))

    async def network(self) -> dict[str, Any]:
        return await self._do(lambda chat: chat.network())

    async def set_network(self, mode: Any = None, rules: list[str] | None = None) -> dict[str, Any]:
        return await self._do(lambda chat: chat.set_network(mode, rules))

    async def set_skills(self, *names: str) -> None:
        await self._do(lambda chat: chat.set_skills(*names))

    async def remove(self, path: str) -> None:
        await self._do(lambda chat: chat.remove(path))

    def events(self, after: int | None = None) -> AsyncIterator[Event]:
        return self._caller.follow(lambda c: client.Chat(self.id, client=c, create=False).events(after))


class AsyncRunning:
    """A command that was started; see mediasandbox.Running."""

    def __init__(self, chat: AsyncChat, record: Command) -> None:
        self.chat, self.record, self.id = chat, record, record.id

    def _of(self, c: client.Client) -> commands.Running:
        return commands.Running(client.Chat(self.chat.id, client=c, create=False), self.record)

    def output(self) -> AsyncIterator[OutputChunk]:
        return self.chat._caller.follow(lambda c: self._of(c).output())

    async def wait(self, turn: str = "") -> Command:
        self.record = await self.chat._caller.call(lambda c: self._of(c).wait(turn))
        return self.record

    async def result(self) -> AsyncResult:
        return AsyncResult(self.chat, await self.chat._caller.call(lambda c: self._of(c).result()))

    async def signal(self, number: int) -> None:
        await self.chat._caller.call(lambda c: self._of(c).signal(number))

    async def feed(self, content: commands.Content | Iterable[bytes]) -> None:
        await self.chat._caller.call(lambda c: self._of(c).feed(content))

    async def cancel(self) -> None:
        await self.chat._caller.call(lambda c: self._of(c).cancel())


class AsyncCell:
    """A finished output file; see mediasandbox.Cell."""

    def __init__(self, chat: AsyncChat, cell: cells.Cell) -> None:
        self.chat, self.record, self.ordinal = chat, cell.record, cell.ordinal
        self.pill, self.file = cell.pill, cell.file

    def __str__(self) -> str:
        return f"#{self.ordinal}"

    async def _do(self, f: Callable[[cells.Cell], T]) -> T:
        return await self.chat._do(lambda chat: f(cells.Cell(chat, self.record)))

    async def save(self, to: str | os.PathLike[str] | BinaryIO | None = None) -> Path | None:
        return await self._do(lambda cell: cell.save(to))

    async def read(self) -> bytes:
        return await self._do(lambda cell: cell.read())

    async def provenance(self) -> Provenance:
        return await self._do(lambda cell: cell.provenance())

    async def replay(self) -> Replay:
        return await self._do(lambda cell: cell.replay())


class AsyncResult:
    """A command that has ended; see mediasandbox.Result."""

    def __init__(self, chat: AsyncChat, result: commands.Result) -> None:
        self.record, self.stdout, self.stderr = result.record, result.stdout, result.stderr
        self.state, self.exit_code, self.ok = result.state, result.exit_code, result.ok
        self.cells = [AsyncCell(chat, c) for c in result.cells]
