"""Client of media-sandbox: exact, repeatable media work in a sandbox."""

from .aio import AsyncCell, AsyncChat, AsyncResult, AsyncRunning
from .cells import Cell
from .client import Chat, Client
from .commands import Result, Running
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .records import *  # noqa: F403
from .records import __all__ as _records

__version__ = "0.1.0"

__all__ = [
    "AsyncCell", "AsyncChat", "AsyncResult", "AsyncRunning", "Cell", "Chat", "Client", "Result", "Running", "__version__",
    *_errors, *(name for name in _records if name != "decode"),
]
