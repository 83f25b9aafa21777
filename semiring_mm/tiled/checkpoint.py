"""The state of an unfinished run, beside its result: from which step it goes on."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .stores import part_of, sync

__all__ = ["Checkpoint"]

FORMAT = 1


@dataclass
class Checkpoint:
    """What is said in ``dist.zarr.part.json``.

    It is written when the data that it speaks of are on the disk, and replaced in one go.

    Parameters
    ----------
    path : Path
        Of the result.
    task : dict
        What is computed, of what: a state is for the same task only.
    tile : int
        Lines of a tile.
    phase : str
        ``"load"``, ``"steps"``, ``"finish"`` or ``"publish"``.
    step : int
        The first one that may not have been done.
    extra : dict
        What else it takes to go on.
    """

    path: Path
    task: dict[str, Any]
    tile: int
    phase: str = "load"
    step: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where it is."""
        return part_of(self.path).with_name(self.path.name + ".part.json")

    def save(self, phase: str, step: int = 0) -> None:
        """Replace what is on the disk."""
        self.phase, self.step = phase, step
        text = json.dumps(
            {"format": FORMAT, "task": self.task, "tile": self.tile, "phase": phase, "step": step,
             "extra": self.extra}, indent=1,
        )  # fmt: skip
        fresh = self.file.with_name(self.file.name + ".new")
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.file)
        sync(self.file.parent)

    def remove(self) -> None:
        """There is nothing to go on with any more."""
        self.file.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The state beside a result.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If the file is no such state.
        """
        found = cls(path, {}, 1)
        try:
            text = found.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            what = f"{path} is finished" if path.exists() else f"there is no {found.file}"
            raise FileNotFoundError(
                f"resume: {what}, so no run can go on; leave out resume to begin one"
            ) from None
        try:
            said = json.loads(text)
            if said["format"] != FORMAT:
                raise ValueError
            return cls(
                path, dict(said["task"]), int(said["tile"]), str(said["phase"]), int(said["step"]),
                dict(said["extra"]),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"resume: {found.file} is no state of an unfinished run that this version can "
                f"read; remove it and what ends in .part beside it, and leave out resume to begin "
                f"again"
            ) from None

    def check(self, task: dict[str, Any]) -> None:
        """Raise ValueError if the state is of another task."""
        for key, value in task.items():
            if self.task.get(key) != value:
                raise ValueError(
                    f"resume: {self.file} is the state of a run with {key} = "
                    f"{self.task.get(key)!r}, and this one has {value!r}; give the same graph and "
                    f"options, or remove it and what ends in .part beside it, and leave out resume"
                )
