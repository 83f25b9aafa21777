"""What is asked of work over tiles: known before any of it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..arrays import device_index
from ..naming import integer

__all__ = ["TileOptions"]


@dataclass(frozen=True)
class TileOptions:
    """The arguments of :func:`semiring_mm.apsp` about devices, files and memory.

    Parameters
    ----------
    device : {None, "cpu", "cuda", "cuda:N"}
    devices : {None, "all"} or sequence of int or "cuda:N"
    out : path or pair of paths, optional
    memory_limit : int or str, optional
    checkpoint : int
    resume : bool
    """

    device: str | None = None
    devices: Any = None
    out: Any = None
    memory_limit: int | str | None = None
    checkpoint: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        try:
            count = integer(self.checkpoint, "checkpoint")
        except TypeError:
            count = 0
        if count < 1:
            raise ValueError(f"checkpoint is a number of steps from 1 on, got {self.checkpoint!r}")
        if self.resume and self.out is None:
            raise ValueError("resume goes on with a run that had out=PATH: give the same path")

    @classmethod
    def of(
        cls, device: str | None, devices: Any, out: Any, memory_limit: int | str | None,
        checkpoint: int, resume: bool,
    ) -> TileOptions:  # fmt: skip
        """The same; a single device that is to hold the matrix needs no tiles."""
        options = cls(device, devices, out, memory_limit, checkpoint, resume)
        if devices is None or out is not None or memory_limit is not None:
            return options
        found = options.indices()
        assert found is not None
        return cls(f"cuda:{found[0]}") if len(found) == 1 else options

    def __bool__(self) -> bool:
        """Whether it asks for work over tiles at all."""
        return any(x is not None for x in (self.devices, self.out, self.memory_limit))

    def indices(self) -> list[int] | None:
        """CUDA devices, or None for the CPU."""
        if self.device is self.devices is None:
            return None
        from . import devices

        if self.devices is not None:
            if self.device is not None:
                raise ValueError(
                    f"device={self.device!r} and devices={self.devices!r}: give one of them"
                )
            return devices.device_list(self.devices)
        index = device_index(self.device)
        if index is None:
            return None
        if index < 0:
            devices.device_list("all", "device")
            import cupy

            return [int(cupy.cuda.runtime.getDevice())]
        return devices.device_list([index], "device")

    def limit(self) -> int | None:
        """Bytes."""
        if self.memory_limit is None:
            return None
        from .sizes import parse_size

        return parse_size(self.memory_limit)

    def paths(self, predecessors: bool) -> tuple[Path, Path | None] | None:
        """Where distances and predecessors go."""
        if self.out is None:
            return None
        given = self.out if isinstance(self.out, (tuple, list)) else (self.out,)
        if len(given) != 1 + predecessors or not all(isinstance(x, (str, PathLike)) for x in given):
            wanted = "two paths, out=(distances, predecessors)" if predecessors else "a path"
            raise ValueError(f"out is {wanted} ending in .npy or .zarr, got {self.out!r}")
        first, *rest = (Path(x) for x in given)
        return first, rest[0] if rest else None
