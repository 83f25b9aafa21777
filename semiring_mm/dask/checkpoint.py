"""Checkpoints of eliminations whose tiles are in the memory of a cluster's workers."""

from __future__ import annotations

import base64
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.elimination import Grid
from ..closures.solve import Problem
from ..naming import named
from ..storage import atomic_write, seal, unseal, unusable

__all__ = ["State"]

_FOLDER = re.compile(r"step-\d+-[0-9a-f]{8}")  # of the tiles of a checkpoint


@dataclass
class State:
    """A folder with the tiles after some step, and the file that says which.

    Each checkpoint is a folder of its own, complete once ``run.json``, which is replaced in one
    piece, names it; only then is the one before it removed. ``run.json`` has a hash of itself and
    the files of tiles have checksums (CRC-32), so that a changed byte in either is refused.
    """

    path: Path
    every: int | None
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def _file(self) -> Path:
        return self.path / "run.json"

    def open(self, resume: bool) -> dict[str, Any]:
        """The description of the run that the folder holds; empty for a new one."""
        there = self._file.exists()
        if there and not resume:
            raise FileExistsError(
                f"there is a checkpoint in {self.path}: {named('tiles.resume', True)} goes on from "
                f"it, or remove it"
            )
        return self._read() if there else {}

    def _read(self) -> dict[str, Any]:
        try:
            run = unseal(self._file.read_bytes().decode())
            step, tile, folder = (run[x] for x in ("step", "tile", "folder"))
            if not (
                type(step) is int and type(tile) is int and tile > 0
                and 0 <= step <= -(-run["n"] // tile)
                and (step == 0 if folder is None else _FOLDER.fullmatch(folder))
            ):  # fmt: skip
                raise ValueError("a field is out of range")
        except (ValueError, KeyError, TypeError):
            raise unusable(self._file, self.path) from None
        return run

    def begin(
        self, problem: Problem, grid: Grid, found: dict[str, Any]
    ) -> NDArray[np.float64] | None:
        """Start, or resume from what was found; gives the margins of its weights."""
        about = {
            "semiring": str(problem.source.s), "n": grid.n, "tile": grid.tile,
            "predecessors": problem.predecessors, "symmetric": problem.steps.symmetric,
            "graph": problem.source.fingerprint(),
        }  # fmt: skip
        for name, value in about.items():
            if found and found.get(name) != value:
                raise ValueError(
                    f"{self.path} holds a checkpoint of another run: its {name} is "
                    f"{found.get(name)}, and here it is {value}"
                )
        self.path.mkdir(parents=True, exist_ok=True)
        if found:
            self.run = found
        else:
            self.write({**about, "step": 0, "folder": None, "margins": None})
        margins = self.run["margins"]
        return None if margins is None else np.frombuffer(base64.b85decode(margins), np.float64)

    def restart(self, margins: NDArray[np.float64]) -> None:
        """The run begins anew, with margins."""
        text = base64.b85encode(margins.tobytes()).decode()
        self.write({**self.run, "step": 0, "folder": None, "margins": text})

    def write(self, run: dict[str, Any]) -> None:
        before, self.run = self.run.get("folder"), run
        with atomic_write(self._file) as part:
            part.write_bytes(seal(run).encode())
        if before is not None:
            shutil.rmtree(self.path / before, ignore_errors=True)

    def due(self, k: int, count: int) -> bool:
        """Whether the tiles are to be written after step k; after the last one they are."""
        return k + 1 == count or (k + 1) % (self.every or -(-count // 8)) == 0

    @property
    def folder(self) -> Path:
        return self.path / str(self.run["folder"])
