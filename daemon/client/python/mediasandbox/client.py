"""The client: chats, commands, cells and files of a daemon."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

from .cells import Cell
from .commands import Content, Result, Running
from .errors import ChatExists, InvalidArgument
from .records import CellRecord, ChatRecord, Command, Event, FileInfo, OutputChunk, Turn, decode
from .streams import save, whole
from .transport import BROKEN, Transport, events

__all__ = ["Chat", "Client"]

# What start takes beside what is to run.
_OPTIONS = {
    "inputs", "env", "dir", "timeout", "turn", "label", "kind", "publish", "stdin", "stream_stdin", "keep_background", "key",
}


class Client:
    """A daemon, for the calls that are not of one chat.

    socket is the daemon's; the default is $MEDIA_SANDBOX_SOCKET, or that of an installed daemon. Only operators may
    name another account than their own.
    """

    def __init__(self, socket: str | None = None, account: str | None = None) -> None:
        self.transport = Transport(socket, account)

    def info(self) -> dict[str, Any]:
        """What the daemon is and allows."""
        return self.transport.call("GET", ["info"])

    def chats(self) -> list[ChatRecord]:
        """The account's chats."""
        return decode(list[ChatRecord], self.transport.call("GET", ["chats"]))

    def chat(self, id: str) -> Chat:
        """A chat that exists; ChatNotFound when it does not."""
        chat = Chat(id, client=self, create=False)
        chat.record()
        return chat

    def skills(self) -> list[dict[str, Any]]:
        """The skills that the account's chats may have."""
        return self.transport.call("GET", ["skills"])


class Chat:
    """One conversation with its sandbox, files and cells.

    With an id the chat of that name is used, and made when there is none; without one a new chat is made, whose name
    the daemon chooses. Files live as long as the sandbox does, cells as long as retention says ("forever", "7d").
    """

    def __init__(
        self, id: str | None = None, *, socket: str | None = None, account: str | None = None, client: Client | None = None,
        title: str = "", network: str = "", retention: str = "", create: bool = True,
    ) -> None:
        self.client = client or Client(socket, account)
        self._call = self.client.transport.call
        if id == "":
            raise InvalidArgument("the chat's id is empty", hint="leave it out for a new chat")
        self.id = id or ""
        if create:
            wish = {"id": id, "title": title, "network": network, "retention": retention}
            try:
                self.id = self._call("POST", ["chats"], send={k: v for k, v in wish.items() if v})["id"]
            except ChatExists:
                pass

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves the chat as it is: its cells stay, and its sandbox until it was idle for long enough."""

    def __repr__(self) -> str:
        return f"Chat({self.id!r})"

    def _path(self, *rest: object) -> list[str]:
        return ["chats", self.id, *map(str, rest)]

    def record(self) -> ChatRecord:
        """The chat as it is now, with its sandbox and its open turn."""
        return decode(ChatRecord, self._call("GET", self._path()))

    def delete(self) -> None:
        """Deletes the chat with its sandbox, records and files."""
        self._call("DELETE", self._path())

    # Turns.

    def open_turn(self, id: str = "") -> Turn:
        """Opens the next turn, with a new budget of work; it closes the one before it."""
        return decode(Turn, self._call("POST", self._path("turns"), send={"id": id} if id else {}))

    def turns(self) -> list[Turn]:
        """The chat's turns, the open one last."""
        return decode(list[Turn], self._call("GET", self._path("turns")))

    # Commands.

    def run(self, argv: Iterable[str] | str, *, check: bool = False, on_output: Callable[[OutputChunk], None] | None = None,
            **options: Any) -> Result:
        """Runs a program, or a line of the shell when it is a string, and waits for its end.

        Options are those of start. on_output sees the output as it comes. With check a command that did not succeed
        raises CommandFailed.
        """
        return self._finish(_program(argv), check, on_output, options)

    def run_python(self, source: str, *args: str, check: bool = False, on_output: Callable[[OutputChunk], None] | None = None,
                   **options: Any) -> Result:
        """Runs Python source, whose sys.argv[1:] are args, and waits for its end. See run."""
        return self._finish({"python": source, "args": list(args)}, check, on_output, options)

    def _finish(self, what: dict[str, Any], check: bool, on_output: Callable[[OutputChunk], None] | None, options: dict[str, Any]) -> Result:
        result = self._start(what, options).result(on_output)
        if check:
            result.check()
        return result

    def start(self, argv: Iterable[str] | str, **options: Any) -> Running:
        """Begins a program or a line of the shell and returns at once.

        Options: inputs (a list: names of what put has brought to /inputs, cells or "#3", URLs to download in the sandbox), env, dir, timeout
        (seconds, at most 600), turn, label, kind (the pill of its cells), publish (patterns of temporary names that are
        published all the same), stdin (bytes), stream_stdin, keep_background, key (an idempotency key).
        """
        return self._start(_program(argv), options)

    def start_python(self, source: str, *args: str, **options: Any) -> Running:
        """Begins Python source and returns at once. See start."""
        return self._start({"python": source, "args": list(args)}, options)

    def _start(self, what: dict[str, Any], options: dict[str, Any]) -> Running:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise TypeError(f"unknown options of a command: {', '.join(sorted(unknown))}; see Chat.start")
        wish = {**what, **options}
        key = wish.pop("key", None) or uuid.uuid4().hex
        if wish.get("timeout") is not None:
            if wish["timeout"] <= 0:
                raise InvalidArgument(f"timeout {wish['timeout']} is not above 0 seconds")
            wish["timeout_seconds"] = wish["timeout"]
        wish.pop("timeout", None)
        if "stdin" in wish:
            wish["stdin"] = base64.b64encode(wish["stdin"]).decode()
        for name in ("inputs", "publish"):
            if isinstance(wish.get(name), str):
                raise TypeError(f"{name} is a list: write [{wish[name]!r}]")
            if wish.get(name):
                wish[name] = [str(i) for i in wish[name]]
        started = self.client.transport.again(
            lambda: self._call("POST", self._path("commands"), send=wish, headers={"Idempotency-Key": key}))
        return Running(self, decode(Command, started))

    def commands(self) -> list[Command]:
        """The chat's commands, oldest first."""
        return decode(list[Command], self._call("GET", self._path("commands")))

    def command(self, id: str) -> Running:
        """A command of the chat, running or ended."""
        return Running(self, decode(Command, self._call("GET", self._path("commands", id))))

    # Cells.

    def cells(self, *, pill: str = "", type: str = "", label: str = "", text: str = "") -> list[Cell]:
        """The chat's cells by ordinal, or those that match all that is given."""
        query = {"pill": pill, "type": type, "label": label, "q": text}
        return [Cell(self, c) for c in decode(list[CellRecord], self._call("GET", self._path("cells"), query=query))]

    def cell(self, ordinal: int) -> Cell:
        """The cell of that ordinal."""
        return Cell(self, decode(CellRecord, self._call("GET", self._path("cells", ordinal))))

    def export(self, to: str | os.PathLike[str] | BinaryIO, **query: str) -> None:
        """Writes the cells, or those that match as in cells, as a ZIP archive, whole or not at all."""
        with self.client.transport.open("GET", self._path("export"), query={"q": query.pop("text", ""), **query}) as answer:
            save(answer, to)

    # Files of the sandbox.

    def put(self, content: Content | os.PathLike[str], path: str = "") -> FileInfo:
        """Writes a file into the sandbox, whole or not at all.

        content is a path of this machine, bytes, or an open binary file. Without a path the file goes to /inputs
        under its own name.
        """
        if isinstance(content, (str, os.PathLike)):
            path = path or "/inputs/" + Path(content).name
            with open(content, "rb") as f:
                return self.put(f, path)
        answer = self.client.transport.open(
            "PUT", self._path("files", "content"), query={"path": path or "/inputs/input"}, body=content,
            headers={"Content-Type": "application/octet-stream"})
        with answer:
            return decode(FileInfo, json.loads(answer.read()))

    def get(self, path: str, to: str | os.PathLike[str] | BinaryIO) -> None:
        """Reads a file of the sandbox into a file of this machine, whole or not at all."""
        with self.client.transport.open("GET", self._path("files", "content"), query={"path": path}) as answer:
            save(answer, to)

    def read(self, path: str) -> bytes:
        """The content of a file of the sandbox."""
        with self.client.transport.open("GET", self._path("files", "content"), query={"path": path}) as answer:
            return whole(answer)

    def files(self, path: str = "/workspace") -> list[FileInfo]:
        """The entries of a directory of the sandbox."""
        return decode(list[FileInfo], self._call("GET", self._path("files"), query={"path": path}))

    def stat(self, path: str) -> FileInfo:
        """Describes a file, a directory or a link of the sandbox."""
        return decode(FileInfo, self._call("GET", self._path("files", "stat"), query={"path": path}))

    def move(self, source: str, to: str, *, replace: bool = False) -> FileInfo:
        """Renames a file or a directory of the sandbox."""
        wish = {"from": source, "to": to, "replace": replace}
        return decode(FileInfo, self._call("POST", self._path("files", "move"), send=wish))

    def remove(self, path: str) -> None:
        """Removes a file or a directory of the sandbox."""
        self._call("DELETE", self._path("files"), query={"path": path})

    # Events, network, skills.

    def events(self, after: int | None = None) -> Iterator[Event]:
        """Follows what happens in the chat, from the event after that id, or from now on; without an end.

        A daemon that restarts is waited for, and none is missed or told twice.
        """
        last = self.record().last_event if after is None else after
        met = False
        while True:
            answer = self.client.transport.again(
                lambda: self.client.transport.open("GET", self._path("events"), headers={"Last-Event-ID": str(last)}), met=met)
            met = True
            with answer:
                try:
                    for _, data in events(answer):
                        last = data["id"]
                        yield decode(Event, data)
                except BROKEN:
                    pass  # the next connection goes on after the last one

    def network(self) -> dict[str, Any]:
        """What the chat's sandboxes may reach, and what they moved."""
        return self._call("GET", self._path("network"))

    def set_network(self, mode: Literal["public", "allowlist", "none"] | None = None, rules: list[str] | None = None) -> dict[str, Any]:
        """Changes what the chat's sandboxes may reach; it is in force when this returns."""
        wish = {"mode": mode, "rules": rules}
        return self._call("PATCH", self._path("network"), send={k: v for k, v in wish.items() if v is not None})

    def set_skills(self, *names: str) -> None:
        """Says which skills the chat has, from now on and in its live sandbox."""
        self._call("PUT", self._path("skills"), send={"skills": list(names)})


def _program(argv: Iterable[str] | str) -> dict[str, Any]:
    if isinstance(argv, str):
        return {"shell": argv}
    if not isinstance(argv, Iterable):
        raise TypeError(f"a program is a list of arguments or a line for the shell, not {argv!r}")
    return {"argv": [str(a) for a in argv]}
