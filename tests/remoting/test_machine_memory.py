"""What a process may use: of the machine, or of its container."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.remoting.frames.frame_memory import LIMIT, FrameMemory
from pocketmq.remoting.machine_memory import at_most, container_memory, memory


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b", {"a/memory.max": "1000\n", "a/b/memory.max": "max\n"}, 1000),
        ("0::/a/b", {"a/memory.max": "1000\n", "a/b/memory.max": "800\n"}, 800),
        # Within a container the group has the name that the host gave it, or none.
        ("0::/of/the/host", {"memory.max": "2000\n"}, 2000),
        ("0::/", {"memory.max": "2000\n"}, 2000),
        ("4:memory:/of/the/host\n0::/", {"memory/memory.limit_in_bytes": "700\n"}, 700),
        # A group that is nested in a smaller one, of either version.
        ("0::/a/b/c", {"a/memory.max": "500\n", "a/b/c/memory.max": "900\n"}, 500),
        (
            "4:memory:/a/b",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "memory/a/memory.limit_in_bytes": "500\n",
                "memory/a/b/memory.limit_in_bytes": "900\n",
            },
            500,
        ),
        # Both versions at once: that with the memory controller has the limit.
        (
            "4:memory:/a\n0::/b",
            {"memory/a/memory.limit_in_bytes": "500\n", "unified/b/memory.max": "900\n"},
            500,
        ),
        ("3:cpu,memory:/a\n2:cpu:/b", {"memory/a/memory.limit_in_bytes": "600\n"}, 600),
        ("2:cpu:/b", {"memory/b/memory.limit_in_bytes": "600\n"}, None),
        ("0::/a", {"a/memory.max": "max\n"}, None),
        ("nonsense", {}, None),
    ],
)
def test_the_smallest_limit_of_the_control_groups_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    write(tmp_path, {"proc/self/cgroup": groups})
    write(tmp_path / "sys/fs/cgroup", limits)
    assert container_memory(tmp_path) == expected


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert container_memory(tmp_path) is None


def test_bounds_are_a_part_of_the_memory() -> None:
    assert at_most(1) == 1
    assert at_most(1 << 60) == memory() // 4
    assert FrameMemory().limit == min(LIMIT, memory() // 4)
