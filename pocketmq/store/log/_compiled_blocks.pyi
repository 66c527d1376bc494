from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from pocketmq.message.buffers import ReadableBuffer

def first_wrong_crc(
    view: memoryview,
    begins: NDArray[Any],
    lengths: NDArray[Any],
    expected: NDArray[Any],
    crc: Callable[[ReadableBuffer], int],
    mask: int,
) -> int: ...
def tags_codes(
    view: memoryview,
    begins: NDArray[Any],
    ends: NDArray[Any],
    codes: NDArray[Any],
    tags_code: Callable[[bytes], int],
) -> None: ...
def record_places(
    view: memoryview, at: int, stop: int, least: int, places: NDArray[Any]
) -> tuple[int, int]: ...
def heads(
    view: memoryview,
    base: int,
    places: NDArray[Any],
    magic_v1: int,
    magic_v2: int,
    columns: NDArray[Any],
) -> int: ...
def properties_begins(
    view: memoryview, places: NDArray[Any], magic_v2: int, begins: NDArray[Any]
) -> None: ...
def topic_numbers(
    view: memoryview,
    begins: NDArray[Any],
    lengths: NDArray[Any],
    numbers: NDArray[Any],
    number_of: Callable[[bytes], int],
) -> None: ...
def rows_with(
    view: memoryview,
    begins: NDArray[Any],
    ends: NDArray[Any],
    part: bytes,
    rows: NDArray[Any],
) -> int: ...
