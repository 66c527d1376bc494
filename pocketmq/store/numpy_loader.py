"""numpy, imported on a thread.

The import takes 50 to 110 ms, which no request should wait for. Code that is faster with numpy asks
`numpy_loader`, and works without numpy until it is loaded.
"""

from __future__ import annotations

import threading
from typing import Final


class NumpyLoader:
    """Imports numpy, and the modules through which requests use it, once.

    Attributes:
        is_loaded: they are loaded.
    """

    def __init__(self) -> None:
        self.is_loaded = False
        self._thread: threading.Thread | None = None

    def ask(self) -> bool:
        """Tell whether they are loaded; if not, start loading them."""
        if self._thread is None:
            self.load()
        return self.is_loaded

    def load(self) -> threading.Thread:
        """Return the thread that imports them, started."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="store-load-numpy", daemon=True)
            self._thread.start()
        return self._thread

    def _load(self) -> None:
        import pocketmq.store.encoding.entry_array
        import pocketmq.store.encoding.uniform_batch
        import pocketmq.store.queue.property_search  # noqa: F401

        self.is_loaded = True


numpy_loader: Final = NumpyLoader()
