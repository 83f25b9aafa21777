"""The workers of a Dask cluster: what they have, and how a task computes on one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import distributed
import numpy as np

from .. import pool
from ..closures.elimination import Grid
from ..engine import Engine, named
from ..memory import too_large
from ..naming import integer

__all__ = ["LEAST", "Cluster", "Worker", "check_client", "positive", "worker_name"]

_UNIT = 64  # tiles are multiples of it
LEAST = {None: 1024, "cpu": 1024, "cuda": 8192}  # rows of a tile that is worth a task
_USABLE = 0.8  # of a worker's memory: there Dask's workers pause


def check_client(client: Any) -> None:
    if not isinstance(client, distributed.Client):
        raise TypeError(
            f"client is a distributed.Client, such as Client('tcp://host:8786'), got "
            f"{type(client).__name__}"
        )
    if client.asynchronous:
        raise TypeError("the client is asynchronous, and this call waits: use another client")
    if client.status != "running":
        raise ValueError(f"the client is {client.status}: make a new one")


def positive(value: Any, name: str) -> int:
    number = integer(value, name)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


@dataclass(frozen=True)
class Cluster:
    """The workers, and what they have."""

    client: Any
    device: str | None
    tasks: int  # that all workers together run at once
    sharers: int  # tasks that run at once on a host
    memory: float  # bytes

    @classmethod
    def of(cls, client: Any, device: str | None) -> Cluster:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            raise ValueError(
                "the cluster has no workers: start some, and call client.wait_for_workers(1)"
            )
        hosts: dict[str, int] = {}
        for worker in workers:
            hosts[worker["host"]] = hosts.get(worker["host"], 0) + worker["nthreads"]
        if device == "cuda":
            memory = math.fsum(client.run(_device_memory).values())
        else:  # 0 or None: no limit
            memory = math.fsum(worker["memory_limit"] or math.inf for worker in workers)
        return cls(client, device, sum(hosts.values()), max(hosts.values()), memory * _USABLE)

    def tile(self, n: int) -> int:
        """A side of the tiles: there are enough for all to have work, and few enough to give out.

        With 16 a side a step's pivot, which is one worker's, is a sixteenth of the step or less.
        """
        count = max(16, 4 * math.isqrt(self.tasks))
        return max(LEAST[self.device], -(-n // (count * _UNIT)) * _UNIT)

    def check(self, grid: Grid, dtype: np.dtype[Any], predecessors: bool) -> None:
        """Refuse what does not fit."""
        n, tile, unit = grid.n, grid.tile, dtype.itemsize + 4 * predecessors
        side = math.sqrt(self.tasks)
        # the matrix; row and column k and k + 1 where they are needed; what tasks are writing
        needed = unit * (n * n + 4 * n * tile * side + 3 * tile * tile * self.tasks)
        if needed > self.memory:
            trees = " with predecessors" if predecessors else ""
            raise too_large(
                f"the {n} x {n} matrix in {dtype}{trees}, in tiles of {tile},", needed, self.memory,
                "add workers, or use float32 (half of float64)", where=" on the workers",
                room="allowed",
            )  # fmt: skip


def _device_memory() -> int:
    named("cuda")  # raises where a device or CuPy is missing
    import cupy

    with cupy.cuda.Device(0):
        return int(cupy.cuda.runtime.memGetInfo()[1])


@dataclass(frozen=True)
class Worker:
    """How a task computes: on which device, beside how many tasks on its host."""

    device: str | None
    sharers: int

    @contextlib.contextmanager
    def engine(self, *at: int) -> Iterator[Engine]:
        """The engine, for tile (i, j) of step k or tile (i, j)."""
        tile = f"tile {at[-2:]}{f' of step {at[0]}' if len(at) > 2 else ''}"
        try:
            if self.device == "cuda":
                engine = named("cuda")
                with engine.on(0):
                    yield engine
                    engine.wait()  # so that what goes wrong goes wrong here
            else:  # each of the tasks on this host has its part of the cores
                with pool.limited(max(1, pool.default_threads() // self.sharers)):
                    yield named("cpu")
        except MemoryError as error:
            where = f" on {'its GPU' if self.device == 'cuda' else 'the host'}"
            raise too_large(
                f"{tile}: worker {worker_name()} ({error})", None, None,
                "take smaller tiles, or more workers", where=where,
            ) from None  # fmt: skip


def worker_name() -> str:
    try:
        return str(distributed.get_worker().address)
    except ValueError:  # not in a task
        return "none"
