"""`python -m pocketmq` on what it takes for a machine with half a gigabyte: the limits that are a
quarter of the memory are 128 MiB, which a test can exceed."""

from __future__ import annotations

import sys

from pocketmq.remoting import machine_memory

machine_memory.memory = lambda: 512 << 20  # type: ignore[assignment]

if __name__ == "__main__":
    from pocketmq.cli import main

    sys.exit(main())
