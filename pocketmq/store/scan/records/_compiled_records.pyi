from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from pocketmq.message.buffers import ReadableBuffer

class Places:
    def __init__(
        self,
        buffers: tuple[NDArray[Any], ...],
        buffer: NDArray[Any],
        offset: NDArray[Any],
        length: NDArray[Any],
    ) -> None: ...

class CompiledTexts:
    rows: int
    def column(self, name: bytes) -> tuple[int, bytes, bytes, bytes]: ...
    def maps(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...

def copy_bodies(
    bodies: Places,
    crc: Callable[[ReadableBuffer], int],
    values: NDArray[Any],
    offsets: NDArray[Any],
    checksums: NDArray[Any],
) -> None: ...
def take_apart(places: Places) -> CompiledTexts | None: ...
