"""Checkpoints of eliminations whose tiles are in the memory of a cluster's workers."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..naming import named
from ..tiled.checkpoint import Checkpoint

__all__ = ["State"]

_FOLDER = re.compile(r"step-\d+-[0-9a-f]{8}")  # of the tiles of a checkpoint


@dataclass
class State(Checkpoint):
    """A folder with the tiles after some step, and the file that says which.

    Each checkpoint is a folder of its own, complete once ``run.json``, which is replaced in one
    piece, names it; only then is the one before it removed. ``run.json`` has a hash of itself and
    the files of tiles have checksums (CRC-32), so that a changed byte in either is refused.
    """

    every: int | None = None  # steps from one checkpoint to the next; default an eighth of them

    @property
    def file(self) -> Path:
        return self.path / "run.json"

    @property
    def rest(self) -> str:
        return str(self.path)

    @classmethod
    def open(cls, path: Path, every: int | None, resume: bool) -> State:
        """The state of the run that a folder has; one without a tile for a new run."""
        state = cls(path)
        if state.file.exists():
            if not resume:
                raise FileExistsError(
                    f"there is a checkpoint in {path}: {named('tiles.resume', True)} goes on from "
                    f"it, or remove it"
                )
            state = cls.load(path)
            name = state.extra.get("folder")
            if not (_FOLDER.fullmatch(str(name)) if state.step else name is None):
                raise state.unusable()
        state.every = every
        return state

    def begin(self, problem: Problem, grid: Grid) -> None:
        """Begin, or compare what is resumed with the problem."""
        task = {
            "semiring": str(problem.source.s), "n": grid.n, "tile": grid.tile,
            "predecessors": problem.predecessors, "symmetric": problem.steps.symmetric,
            "graph": problem.source.fingerprint(),
        }  # fmt: skip
        if self.tile:
            self.check(task, grid.count)
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self.task, self.tile = task, grid.tile
        self.write(0)

    def write(self, step: int, folder: str | None = None) -> None:
        """Save a step and the name of the folder with its tiles; remove those of the last one."""
        before, self.extra["folder"] = self.extra.get("folder"), folder
        self.save("steps", step)
        if before is not None:
            shutil.rmtree(self.path / before, ignore_errors=True)

    def due(self, k: int, count: int) -> bool:
        """Whether the tiles are to be written after step k; after the last one they are."""
        return k + 1 == count or (k + 1) % (self.every or -(-count // 8)) == 0

    @property
    def folder(self) -> Path:
        return self.path / str(self.extra["folder"])
