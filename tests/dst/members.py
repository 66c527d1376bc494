"""A9: what the members of a group have of the log, and who was the master."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from .cluster import Cluster
from .engine.disk import LOG


def disagree(cluster: Cluster, flips: list[tuple[int, int, int]]) -> Iterator[str]:
    """Look at the members once nothing happens any more: their logs are equal, as far as all say
    that all have them, but for records with flipped bits, and no epoch had two masters.

    Where records have no checksum of the whole, nobody can tell what a power cut leaves at a wrong
    place, if it lies in the properties of a record.
    """
    excused = list(flips)
    if not cluster.plan.has_checksums:
        for machine in cluster.machines.values():
            excused += [(int(name), begin, end) for name, begin, end in machine.disk.astray]
    for epoch, names in sorted(cluster.masters.items()):
        if len(names) > 1:
            yield f"A9 epoch {epoch} had the masters {', '.join(sorted(names))}"
    logs = {}
    for name, broker in cluster.running_brokers():
        figures = broker.components.replication.figures()
        end = int(str(figures.get("confirmOffset", broker.store.commit_log.written)))
        files = _files(cluster.machines[name].root / "store" / LOG)
        for file, begin, damaged_end in excused:
            if file in files:
                content = files[file]
                empty = bytes(damaged_end - begin)
                files[file] = content[:begin] + empty + content[damaged_end:]
        logs[name] = (end, files)
    for (one, (one_end, one_files)), (other, (other_end, other_files)) in combinations(
        logs.items(), 2
    ):
        end = min(one_end, other_end)
        for begin in one_files.keys() & other_files.keys():
            size = max(end - begin, 0)
            if one_files[begin][:size] != other_files[begin][:size]:
                yield f"A9 {one} and {other} differ between {begin} and {end} of their logs"


def _files(directory: Path) -> dict[int, bytes]:
    """The files of a log by their first physical offset."""
    return {int(path.name): path.read_bytes() for path in directory.glob("[0-9]*")}
