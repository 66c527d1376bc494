"""What Linux tells of a process in /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["anonymous_megabytes", "cpu_seconds", "resident_megabytes"]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(pid: int) -> float:
    """VmRSS of a process in MB of 10^6 bytes, which counts the pages of files that it maps."""
    return _megabytes(pid, "status", "VmRSS")


def anonymous_megabytes(pid: int) -> float:
    """The memory of a process that no file backs, in MB of 10^6 bytes."""
    return _megabytes(pid, "smaps_rollup", "Anonymous")


def _megabytes(pid: int, file: str, field: str) -> float:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no {field} of process {pid}")
