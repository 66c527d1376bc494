"""The values of an expression and how they compare.

A value is None (NULL), a bool, a str, an int (Java's Integer, or its Long as `Long`) or a
float (Java's Double). Properties are strings; one that meets a number is read as that number's
type, by Java's rules: an Integer has no value above 2**31-1, and a Double orders -0.0 before 0.0
and NaN after everything. Reference: filter ComparisonExpression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

Value = None | bool | str | int | float

#: Characters of the longest text that is read as a number. Parsing longer ones for each message
#: takes too long; they are not numbers here.
_LONGEST_NUMBER: Final = 1024

INTEGER_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Long(int):
    """A 64-bit integer; a plain int is a 32-bit one."""

    __slots__ = ()


class Incomparable(ValueError):
    """Two values that cannot be compared: the expression has no result for this message."""


_DIGITS: Final = re.compile(r"[+-]?\d+")
_DOUBLE: Final = re.compile(
    r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
# Java's trim() cuts every character up to and including the space.
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))


def integer_of(text: str, highest: int) -> int:
    """`text` as a whole number up to `highest`. Raises Incomparable."""
    if len(text) <= _LONGEST_NUMBER and _DIGITS.fullmatch(text):
        number = int(text)
        if -highest - 1 <= number <= highest:
            return number
    raise Incomparable(f"{text[:80]!r} is not a number up to {highest}")


def double_of(text: str) -> float:
    """`text` as a Double. Raises Incomparable."""
    match = _DOUBLE.fullmatch(text.strip(_JAVA_BLANKS)) if len(text) <= _LONGEST_NUMBER else None
    if match is None:
        raise Incomparable(f"{text[:80]!r} is not a number")
    sign, name, decimal, hexadecimal = match.groups()
    if name:
        number = float(name)
    elif decimal:
        number = float(decimal)
    else:
        try:
            number = float.fromhex(hexadecimal)
        except OverflowError:
            number = math.inf
    return -number if sign == "-" else number


_FROM_TEXT: Final[dict[type, Callable[[str], bool | int | float]]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: integer_of(text, INTEGER_MAX),
    Long: lambda text: integer_of(text, LONG_MAX),
    float: double_of,
}


def compare(left: bool | str | int | float, right: bool | str | int | float) -> int:
    """Compare as Java's compareTo does: negative, 0 or positive. Raises Incomparable."""
    left_type, right_type = type(left), type(right)
    if left_type is not right_type:
        if left_type is str:
            left = _FROM_TEXT[right_type](left)  # type: ignore[arg-type]
        elif right_type is str:
            if left_type is bool:
                raise Incomparable("a boolean on the left of a string")
            right = _FROM_TEXT[left_type](right)  # type: ignore[arg-type]
        elif left_type is bool or right_type is bool:
            return -1
        elif left_type is float:
            right = float(right)
        elif right_type is float:
            left = float(left)
    if type(left) is float and type(right) is float:
        return compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: a total order."""
    if left < right:
        return -1
    if left > right:
        return 1
    key, other = _total(left), _total(right)
    return (key > other) - (key < other)


def compare_ordered(left: bool | str | int | float, right: bool | str | int | float) -> int:
    """`compare` for `<`, `<=`, `>` and `>=`: two strings are compared as Doubles."""
    if type(left) is str and type(right) is str:
        return compare_doubles(double_of(left), double_of(right))
    return compare(left, right)


def equal(left: Value, right: Value) -> bool | None:
    """`=` with NULL in mind: unknown when only the left one is, true when both are."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is str and type(right) is str:
        return left == right
    return compare(left, right) == 0


def _total(number: float) -> tuple[bool, float]:
    # Among numbers that are neither smaller nor greater, only zeros and NaN differ.
    if number != number:
        return True, 0.0
    return False, math.copysign(1.0, number) if number == 0 else 0.0
