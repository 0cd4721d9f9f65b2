"""HTTP over the daemon's Unix socket. Each request has a connection of its own, so threads need no lock."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode

from .errors import InvalidArgument, StreamCut, Unreachable, from_wire

__all__ = ["BROKEN", "DEFAULT_SOCKET", "Abortable", "Transport", "events"]

DEFAULT_SOCKET = "/run/media-sandbox/api.sock"

# How long a daemon that went away is waited for, in seconds: it may be
# restarting, and commands go on without it.
RECONNECT_FOR = 30.0

# What a connection raises that the daemon's end breaks.
BROKEN = (ConnectionError, http.client.IncompleteRead, http.client.BadStatusLine)

T = TypeVar("T")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("media-sandbox")
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._path)
        except OSError as e:
            sock.close()
            raise _unreachable(self._path, e) from e
        self.sock = sock


def _unreachable(path: str, e: OSError) -> Unreachable:
    if e.errno in (errno.EACCES, errno.EPERM):
        return Unreachable(f"may not connect to {path}", hint="is your user in the group that owns the socket?")
    return Unreachable(f"no daemon answers on {path}: {e.strerror}", hint="is sandboxd running?", retryable=True)


class Transport:
    """Speaks to the socket; the default is $MEDIA_SANDBOX_SOCKET, or DEFAULT_SOCKET."""

    def __init__(self, path: str | None = None, account: str | None = None) -> None:
        self.path = path or os.environ.get("MEDIA_SANDBOX_SOCKET") or DEFAULT_SOCKET
        self.account = account

    def _connection(self) -> http.client.HTTPConnection:
        return _Connection(self.path)

    def open(
        self, method: str, parts: list[str], *, query: dict[str, Any] | None = None,
        body: bytes | BinaryIO | Iterator[bytes] | None = None, headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Makes a request and returns the answer to it, whose close ends the connection."""
        for p in parts:
            if p in ("", ".", ".."):
                raise InvalidArgument(f"{p!r} is not a name")
        url = "/v1/" + "/".join(quote(p, safe="") for p in parts)
        if query:
            url += "?" + urlencode({k: v for k, v in query.items() if v not in (None, "")})
        head = dict(headers or {})
        if self.account:
            head["Media-Sandbox-Account"] = self.account
        conn = self._connection()
        try:
            try:
                conn.request(method, url, body=body, headers=head)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the whole body was sent: the answer says why
            answer = conn.getresponse()
            if answer.status >= 400:
                raise _refusal(answer)
        except BaseException:
            conn.close()
            raise
        # The answer has the socket from here on; it is closed with it.
        if conn.sock is not None:
            conn.sock.close()
        return answer

    def call(self, method: str, parts: list[str], *, query: dict[str, Any] | None = None, send: Any = None,
             headers: dict[str, str] | None = None) -> Any:
        """Makes a request with a JSON body and decodes the JSON answer; None when there is none."""
        head, body = dict(headers or {}), None
        if send is not None:
            head["Content-Type"], body = "application/json", json.dumps(send).encode()
        with self.open(method, parts, query=query, body=body, headers=head) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def again(self, attempt: Callable[[], T], *, met: bool = False) -> T:
        """Calls attempt, and calls it again while the daemon is away after it was there.

        A daemon that never was there is not waited for; met says that it was, and so does a connection that breaks.
        """
        lost, pause = 0.0, 0.05
        while True:
            try:
                return attempt()
            except (Unreachable, *BROKEN) as e:
                met = met or not isinstance(e, Unreachable)
                now = time.monotonic()
                lost = lost or now
                if not met or now - lost > RECONNECT_FOR:
                    if isinstance(e, Unreachable):
                        raise
                    raise StreamCut(f"the daemon went away: {e}", retryable=True) from e
            time.sleep(pause)
            pause = min(2 * pause, 1.0)


class Abortable(Transport):
    """A transport whose requests another thread can end."""

    def __init__(self, path: str | None = None, account: str | None = None) -> None:
        super().__init__(path, account)
        self._guard = threading.Lock()
        self._aborted = False
        self._sockets: list[socket.socket] = []

    def _connection(self) -> http.client.HTTPConnection:
        conn = _Connection(self.path)
        conn.connect()
        assert conn.sock is not None
        with self._guard:
            if self._aborted:
                conn.close()
                raise StreamCut("it was canceled")
            # A descriptor of its own: the connection's is closed when its answer is read.
            self._sockets.append(conn.sock.dup())
        return conn

    def abort(self) -> None:
        """Ends what is under way, and refuses what comes after it."""
        with self._guard:
            self._aborted = True
            for s in self._sockets:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the daemon was faster
        self.close()

    def close(self) -> None:
        """Frees the descriptors."""
        with self._guard:
            while self._sockets:
                self._sockets.pop().close()


def _refusal(answer: http.client.HTTPResponse) -> Exception:
    text = answer.read(64 << 10)
    try:
        body = json.loads(text)
    except ValueError:
        body = text.decode(errors="replace").strip()
    return from_wire(body, answer.status)


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Reads server-sent events as (name, decoded data) until the stream ends."""
    name, data = "", b""
    for line in answer:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"event: "):
            name = line[7:].decode()
        elif line.startswith(b"data: "):
            data = line[6:]
        elif not line and name:
            if name == "error":
                raise from_wire(json.loads(data), 200)
            yield name, json.loads(data)
            name, data = "", b""
