"""State of an unfinished run: the step from which it resumes, in a file that is checked."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..closures.elimination import Grid
from ..naming import named
from ..storage import atomic_write, seal, unseal, unusable
from .results import part_of, work_of

__all__ = [
    "Checkpoint", "find_state", "is_finished", "keep_record", "leftovers", "record_of",
]  # fmt: skip

FORMAT = 2
PHASES = ("load", "steps", "publish")


@dataclass
class Checkpoint:
    """The state of a run, in ``dist.zarr.part.json``.

    It is written after the data that it describes have reached the disk, and replaced atomically.
    """

    path: Path  # of the result
    # what is computed, of what: only the same task resumes
    task: dict[str, Any] = field(default_factory=dict)
    tile: int = 0  # rows and columns of a tile
    phase: str = "load"  # "load" (the graph is being read), "steps" or "publish" (all is computed)
    step: int = 0  # the first step that may not have been done
    extra: dict[str, Any] = field(default_factory=dict)  # what else is needed to resume

    @property
    def file(self) -> Path:
        """Path of the state."""
        return part_of(self.path).with_name(self.path.name + ".part.json")

    def save(self, phase: str, step: int = 0) -> None:
        """Replace the state on the disk."""
        self.phase, self.step = phase, step
        text = seal(
            {"format": FORMAT, "task": self.task, "tile": self.tile, "phase": phase, "step": step,
             "extra": self.extra},
        )  # fmt: skip
        with atomic_write(self.file) as part:
            part.write_bytes(text.encode())

    def remove(self) -> None:
        """Delete the state."""
        self.file.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the state beside a result.

        Raises
        ------
        ValueError
            If the file is not a state that this version wrote, or has changed since.
        """
        found = cls(path)
        try:
            fields = unseal(found.file.read_bytes().decode())
            counts, phase = (fields["tile"], fields["step"]), fields["phase"]
            if (
                fields.pop("format") != FORMAT
                or not all(isinstance(fields[x], dict) for x in ("task", "extra"))
                or not all(type(x) is int and x >= 0 for x in counts) or fields["tile"] == 0
                or phase not in PHASES or (phase != "steps" and fields["step"])
            ):  # fmt: skip
                raise ValueError("a field is out of range")
            return cls(path, **fields)
        except (ValueError, KeyError, TypeError):
            raise found.unusable() from None

    @property
    def rest(self) -> str:
        """What is left of the run on the disk, for messages."""
        return f"it and what begins with {self.path.name}.part beside it"

    def unusable(self) -> ValueError:
        """The error for a state that cannot be used."""
        return unusable(self.file, self.rest)

    def margins(self) -> NDArray[np.float64] | None:
        """The margins of the nodes with which the run began; None: without."""
        if "margins" not in self.extra:
            return None
        found = np.frombuffer(base64.b85decode(self.extra["margins"]), np.float64)
        if found.shape != (self.task["n"],):
            raise self.unusable()
        return found

    def keep_margins(self, margins: NDArray[np.float64]) -> None:
        """Note margins, to be saved."""
        self.extra["margins"] = base64.b85encode(margins.tobytes()).decode()

    def check(self, task: dict[str, Any], steps: int) -> None:
        """Raise ValueError if the state is of another task, or of more than so many steps."""
        for key, value in task.items():
            if self.task.get(key) != value:
                raise ValueError(
                    f"{named('tiles.resume')}: {self.file} is the state of a run with {key} = "
                    f"{self.task.get(key)!r}, and this one has {value!r}; give the same graph and "
                    f"options, or remove {self.rest}, and leave out {named('tiles.resume')}"
                )
        if self.step > steps:
            raise self.unusable()


def find_state(
    paths: Sequence[Path], task: dict[str, Any], resume: bool, rows: int
) -> Checkpoint | None:
    """The state to resume from; an error if results or states are there that would be lost.

    None: there is nothing yet, with `resume` or without.
    """
    state = None
    if resume and Checkpoint(paths[0]).file.exists():
        state = Checkpoint.load(paths[0])
        state.check(task, Grid(rows, state.tile).count)
    for path in paths:
        if os.path.lexists(path) and (state is None or state.phase != "publish"):
            raise FileExistsError(
                f"{named('tiles.out')}: {path} is there already; give another path, or remove it"
            )
        if state is not None:
            continue
        for rest in (Checkpoint(path).file, part_of(path), part_of(work_of(path))):
            if rest.exists():
                way = (
                    "and its state is not there, so that no run can go on: remove it" if resume
                    else f"{named('tiles.resume', True)} goes on with it, or remove it"
                )  # fmt: skip
                raise FileExistsError(
                    f"{named('tiles.out')}: {rest} is left from a run that did not end; {way} (and "
                    f"{leftovers([path])}, what there is of them) to begin again"
                )
    return state


# Finished results


def record_of(path: Path) -> Path:
    """Path of the record of a finished result: what was computed, of what."""
    return path.with_name(path.name + ".done.json")


def keep_record(paths: Sequence[Path], task: dict[str, Any], graph: str) -> None:
    """Write the record of finished results, so that `resume` knows that nothing is left to do.

    `graph` is the fingerprint of what was given.
    """
    files = {path.name: _stamp(path) for path in paths}
    with atomic_write(record_of(paths[0])) as part:
        fields = {"format": FORMAT, "task": task, "graph": graph, "files": files}
        part.write_bytes(seal(fields).encode())


def is_finished(paths: Sequence[Path], task: dict[str, Any], graph: Callable[[], str]) -> bool:
    """Whether results are there, of just this work; False where there are none.

    Raises
    ------
    FileExistsError
        If what is there is the result of other work, or that cannot be known.
    """
    there = [path for path in paths if os.path.lexists(path)]
    if not there:
        return False
    first, file = there[0], record_of(paths[0])

    def other(what: str) -> FileExistsError:
        ways = "give another path, or remove it to begin"
        return FileExistsError(f"{named('tiles.resume')}: {what}; {ways}")

    try:
        fields = unseal(file.read_bytes().decode())
        if fields["format"] != FORMAT:
            raise ValueError("another version's")
        found, marks = dict(fields["task"]), dict(fields["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise other(
            f"{first} is there already, and no {file.name} by which to know that it is the result "
            f"of this work"
        ) from None
    for key, value in task.items():
        if found.get(key) != value:
            raise other(
                f"{first} is the result of a run with {key} = {found.get(key)!r}, and this one "
                f"has {value!r}"
            )
    for path in paths:
        if path not in there:
            raise other(f"{first} is there already, and {path}, which the same run made, is not")
        if _stamp(path) != marks.get(path.name):
            raise other(f"{path} has changed since the run that made it ended (its time says so)")
    if fields["graph"] != graph():
        raise other(f"{first} is the result of a run on another graph")
    return True


def _stamp(path: Path) -> list[int]:
    """Size and time of a file, or of the description of a Zarr array."""
    found = os.stat(path / "zarr.json" if path.is_dir() else path)
    return [found.st_size, found.st_mtime_ns]


def leftovers(paths: Sequence[Path]) -> str:
    """Names of the files that an unfinished run leaves beside its state, for messages."""
    return ", ".join(str(part_of(x)) for x in (*paths, work_of(paths[0])))
