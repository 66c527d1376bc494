"""`python -m tests.dst SEED`: one seed, the whole cluster.

Without --seeds it runs the one seed, shows what is wrong, and the last steps before. With --seeds
it runs so many from there on, each in a process of its own, with --for as many as fit into so many
seconds of processor time.
"""

from __future__ import annotations

import os
import sys
import traceback

if os.environ.get("PYTHONHASHSEED") != "0":
    # The order of sets of texts is that of their hashes.
    os.environ |= {"PYTHONHASHSEED": "0", "POCKETMQ_PURE_PYTHON": "1", "TZ": "UTC"}
    os.execv(sys.executable, [sys.executable, "-m", "tests.dst", *sys.argv[1:]])

from .engine import patches

patches.install()
# What a child is forked with in its buffer, it would write as well.
sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

from .campaign import main  # noqa: E402

if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except Exception:
        traceback.print_exc()
    except SystemExit as error:
        code = int(error.code or 0)
    sys.stdout.flush()
    # What the interpreter does at its end waits for threads, which are simulated.
    os._exit(code)
