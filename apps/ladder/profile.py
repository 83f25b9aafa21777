"""Hardware counters of the rungs, by Nsight Compute."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.machine import ROOT

__all__ = ["METRICS", "counters", "marker", "parse"]

#: The ladder's names of counters, and Nsight Compute's (sums or averages over the chip).
METRICS = {
    "duration": "gpu__time_duration.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "l1_bytes": "l1tex__t_bytes.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts_load": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "conflicts_store": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "fma_pipe": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "alu_pipe": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "lsu_pipe": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
}
_MARK = "ladder_mark_"
_UNITS = {
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12, "ns": 1e-9,
    "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "s": 1.0,
    "second": 1.0,
}  # fmt: skip


def marker(word: str) -> None:
    """Launch an empty kernel whose name marks the rung that follows."""
    import cupy

    kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x", _MARK + word)
    kernel(cupy.zeros(1, cupy.float32))


def counters(
    arguments: Sequence[str], seconds: float = 300.0
) -> tuple[dict[int, dict[str, float]], str]:
    """Run the ladder under Nsight Compute.

    Parameters
    ----------
    arguments : sequence of str
        Of ``python -m apps.ladder``, which is run with ``--once``.
    seconds : float
        When to give up.

    Returns
    -------
    found : dict
        For each rung, by its place, what was counted; by the names of :data:`METRICS`.
    why_not : str
        Empty, or why there is nothing.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        return {}, "Nsight Compute (ncu) is not on the path"
    wanted = dict(METRICS)
    while wanted:
        command = [
            ncu, "--csv", "--page", "raw", "--profile-from-start", "off", "--clock-control", "none",
            "--metrics", ",".join(wanted.values()),
            sys.executable, "-m", "apps.ladder", *arguments, "--once",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=seconds
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {}, f"Nsight Compute: {error}"
        said = done.stdout + done.stderr
        absent = {name for name, metric in wanted.items() if _is_absent(metric, said)}
        if absent and done.returncode:
            wanted = {name: metric for name, metric in wanted.items() if name not in absent}
            continue
        found = parse(done.stdout, wanted)
        if found:
            return found, ""
        errors = [line for line in said.splitlines() if "==ERROR==" in line] or said.splitlines()
        return {}, " ".join(["Nsight Compute:", *errors[-1:]])
    return {}, "Nsight Compute knows none of the counters on this chip"


def _is_absent(metric: str, said: str) -> bool:
    return bool(re.search(rf"(?i)(fail|unknown|not).*{re.escape(metric.split('.')[0])}", said))


def parse(text: str, metrics: dict[str, str] = METRICS) -> dict[int, dict[str, float]]:
    """Parse Nsight Compute's table: the counters of the longest kernel after each marker.

    The table has a row of names, one of units, and one for each kernel.
    """
    start = text.find('"ID"')
    if start < 0:
        return {}
    rows = list(csv.DictReader(io.StringIO(text[start:])))
    if not rows:
        return {}
    units, found, place = rows[0], dict[int, dict[str, float]](), -1
    for row in rows[1:]:
        name = row.get("Kernel Name") or ""
        if _MARK in name:
            place = int(re.findall(rf"{_MARK}(\d+)", name)[0])
            continue
        values = {
            ours: _number(row[theirs], units.get(theirs) or "")
            for ours, theirs in metrics.items()
            if row.get(theirs)
        }
        if place >= 0 and values.get("duration", 0.0) > found.get(place, {}).get("duration", -1.0):
            found[place] = values
    return found


def _number(text: str, unit: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return float("nan")
    return value * _UNITS.get(unit.lower(), 1.0)
