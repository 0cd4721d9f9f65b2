"""What can go wrong, as exceptions.

Each error code of the daemon has an exception of its own, below SandboxError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import Command

__all__ = [
    "AccountFull", "CellNotFound", "ChatExists", "ChatNotFound", "CommandEnded", "CommandFailed", "CommandNotFound",
    "DiskFull", "FileAlreadyExists", "FileMissing", "Forbidden", "HostFull", "IdempotencyConflict", "InternalError",
    "InvalidArgument", "MethodNotAllowed", "RouteNotFound", "SandboxError", "SkillInvalid", "SkillNotFound",
    "StreamCut", "TooLarge", "TurnClosed", "TurnSpent", "Unauthenticated", "Unavailable", "Unreachable",
]


class SandboxError(Exception):
    """What the daemon refused.

    code is stable and for programs, the message is for people, hint says what
    to do about it. retryable tells whether the same request may succeed later.
    """

    code = ""

    def __init__(self, message: str, *, code: str = "", hint: str = "", retryable: bool = False, request_id: str = "") -> None:
        super().__init__(message)
        self.message, self.hint, self.retryable, self.request_id = message, hint, retryable, request_id
        if code:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidArgument(SandboxError):
    code = "invalid_argument"


class Unauthenticated(SandboxError):
    code = "unauthenticated"


class Forbidden(SandboxError):
    code = "forbidden"


class ChatNotFound(SandboxError):
    code = "chat_not_found"


class CommandNotFound(SandboxError):
    code = "command_not_found"


class CellNotFound(SandboxError):
    code = "cell_not_found"


class FileMissing(SandboxError):
    code = "file_not_found"


class FileAlreadyExists(SandboxError):
    code = "file_exists"


class DiskFull(SandboxError):
    code = "disk_full"


class SkillNotFound(SandboxError):
    code = "skill_not_found"


class SkillInvalid(SandboxError):
    code = "skill_invalid"


class RouteNotFound(SandboxError):
    code = "route_not_found"


class MethodNotAllowed(SandboxError):
    code = "method_not_allowed"


class ChatExists(SandboxError):
    code = "chat_exists"


class CommandEnded(SandboxError):
    code = "command_ended"


class TurnSpent(SandboxError):
    code = "turn_budget_spent"


class TurnClosed(SandboxError):
    code = "turn_closed"


class IdempotencyConflict(SandboxError):
    code = "idempotency_conflict"


class TooLarge(SandboxError):
    code = "too_large"


class HostFull(SandboxError):
    code = "host_full"


class AccountFull(SandboxError):
    code = "account_full"


class Unavailable(SandboxError):
    code = "unavailable"


class InternalError(SandboxError):
    code = "internal"


class Unreachable(SandboxError):
    """No daemon answered on the socket."""

    code = "unreachable"


class StreamCut(SandboxError):
    """A stream or an answer ended before its end, and did so again for 30 s."""

    code = "stream_cut"


class CommandFailed(SandboxError):
    """A command that did not succeed, where success was asked for.

    command is its record; stdout and stderr are what it printed.
    """

    code = "command_failed"

    def __init__(self, command: Command, stdout: bytes = b"", stderr: bytes = b"") -> None:
        said = stderr.decode(errors="replace").strip().splitlines()
        why = command.reason or (f"exit code {command.exit_code}" if command.exit_code is not None else "")
        parts = [f"command {command.id} ended as {command.state}", why, said[-1] if said else ""]
        super().__init__(": ".join(p for p in parts if p))
        self.command, self.stdout, self.stderr = command, stdout, stderr


_BY_CODE = {c.code: c for c in SandboxError.__subclasses__()}


def from_wire(body: Any, status: int) -> SandboxError:
    """The exception for an answer of the daemon, {"error": {...}}."""
    e = body.get("error") if isinstance(body, dict) else None
    if not isinstance(e, dict):
        return SandboxError(f"the daemon answered {status}: {body!r}")
    code = str(e.get("code", ""))
    return _BY_CODE.get(code, SandboxError)(
        str(e.get("message", "")), code=code, hint=str(e.get("hint", "")),
        retryable=bool(e.get("retryable", False)), request_id=str(e.get("request_id", "")),
    )
