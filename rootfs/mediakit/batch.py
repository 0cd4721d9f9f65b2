"""The same edit for many files: what fails is named and the rest goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from .errors import MediaError
from .picture import Picture, open_picture, save_picture


@dataclasses.dataclass(frozen=True)
class Outcome:
    source: Path
    output: Path | None
    error: str | None


def each(sources: Iterable[str | Path], edit: Callable[[Picture], Picture], outputs: str | Path = "/outputs", ending: str | None = None, quality: int = 92) -> list[Outcome]:
    """Open, edit and save each file under its own name in outputs (with another
    ending if asked). Prints a line a file."""
    done: list[Outcome] = []
    taken: set[str] = set()
    for source in sorted(map(Path, sources)):
        name = source.with_suffix(ending).name if ending else source.name
        if name in taken:
            name = f"{Path(name).stem}-{source.suffix[1:]}{Path(name).suffix}"
        taken.add(name)
        try:
            output = save_picture(edit(open_picture(source)), Path(outputs) / name, quality)
            done.append(Outcome(source, output, None))
        except MediaError as err:
            done.append(Outcome(source, None, str(err)))
        last = done[-1]
        print(f"{source.name}: {'written as ' + last.output.name if last.output else 'NOT DONE: ' + str(last.error)}")
    return done
