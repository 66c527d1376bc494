"""Generated SQL92 expressions, right and wrong ones, and messages to ask them about.

`python -m tests.interop.harness.sql_corpus` asks the official filter module about a corpus and
writes tests/data/sql_filter.json, which tests/message compares ours with where there is no Java.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "data" / "sql_filter.json"
GOLDEN_SEED = 5
GOLDEN_COUNT = 1500

NAMES = ["a", "b", "c", "$d", "_e1", "TAGS", "notable"]
MESSAGES: list[dict[str, str]] = [
    {},
    {"a": "5", "b": "10", "c": "abc", "TAGS": "TagA"},
    {"a": "abc", "b": "abc", "$d": "x'y", "_e1": "消息"},
    {"a": "5.0", "b": "-5", "c": "1e3", "$d": "5", "notable": "TRUE"},
    {"a": "2147483648", "b": "9223372036854775807", "c": "0x1p3", "_e1": "3f"},
    {"a": "-0.0", "b": "0.0", "c": "NaN", "$d": "Infinity", "TAGS": "5"},
    {"a": " 5 ", "b": "+5", "c": "007", "$d": "1_000", "_e1": "٥", "notable": "true"},
    {"a": "9223372036854775808", "b": ".5", "c": "5.", "$d": "1e400", "_e1": "5l", "TAGS": "-"},
]

_STRINGS = ["''", "'abc'", "'5'", "'x''y'", "'消息'", "'b'", "'5.0'", "'TRUE'", "'a b\n'", "'AbC'"]
# Not all of them are allowed: a decimal may not be 0.0, a Long not greater than 2**63-1.
_NUMBERS = [
    "0", "5", "10", "5L", "007", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "5.0", "5.", ".5", "5E0", "1e3", "0.0", "1e400", "1e-400", "3.5e-2",
]  # fmt: skip
_WRONG = [
    "(", ")", "=", "IS", "NOT", ",", "#", "/", "--", "/* x", "'open", "5x", "a b", "LIKE", "==",
    "!=", "AND", "BETWEEN", "\x00", "ſ", "K", "/**/", "-- c\n", "/* * */", "\t", "\f",
]  # fmt: skip


def expression(random: random.Random, depth: int = 4) -> str:
    """One that the grammar allows, though maybe not the checks of its operands."""
    text = _either(random, depth)
    while random.random() < 0.08:
        at = random.randrange(len(text) + 1)
        cut = at + random.randrange(4)
        text = text[:at] + random.choice(["", random.choice(_WRONG)]) + text[cut:]
    return text


def corpus(seed: int, count: int) -> list[str]:
    """`count` different expressions, the same for the same seed."""
    source = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[expression(source)] = None
    return list(found)


def _either(random: random.Random, depth: int) -> str:
    if depth <= 0 or random.random() < 0.5:
        return _comparison(random, depth)
    if random.random() < 0.2:
        return f"{_word(random, 'NOT')} ({_either(random, depth - 1)})"
    parts = [_either(random, depth - 1) for _ in range(random.choice((2, 2, 3)))]
    joined = f" {_word(random, random.choice(('AND', 'OR')))} ".join(parts)
    return f"({joined})" if random.random() < 0.4 else joined


def _comparison(random: random.Random, depth: int) -> str:
    operand = random.choice(NAMES) if random.random() < 0.7 else _operand(random, depth)
    no = random.choice(("", "", "NOT "))
    kind = random.randrange(10)
    if kind < 4:
        operator = random.choice(("=", "<>", "<", "<=", ">", ">="))
        usual = random.choice(NAMES + _NUMBERS if operator[0] in "<>" else NAMES + _STRINGS)
        return f"{operand} {operator} {usual if kind < 3 else _operand(random, depth)}"
    if kind == 4:
        return f"{operand} {_word(random, 'IS ' + no + 'NULL')}"
    if kind == 5:
        bounds = [random.choice(_NUMBERS + NAMES) for _ in range(2)]
        return f"{operand} {_word(random, no + 'BETWEEN')} {bounds[0]} AND {bounds[1]}"
    if kind == 6:
        choices = ", ".join(random.choices(_STRINGS, k=random.choice((1, 2, 6))))
        return f"{operand} {_word(random, no + 'IN')} ({choices})"
    if kind < 9:
        operator = no + random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        return f"{operand} {_word(random, operator)} {random.choice(_STRINGS)}"
    return operand


def _operand(random: random.Random, depth: int) -> str:
    kind = random.randrange(20)
    if kind < 10:
        return random.choice(NAMES)
    if kind < 14:
        return random.choice(("", "", "-", "- -", "+")) + random.choice(_NUMBERS)
    if kind < 16:
        return random.choice(_STRINGS)
    if kind == 16:
        return _word(random, random.choice(("TRUE", "FALSE", "NULL")))
    if kind == 17:
        return random.choice(("-", "+", "NOT ")) + _operand(random, depth)
    if kind == 18 and depth > 0:
        return f"({_either(random, depth - 1)})"
    return f"({random.choice(NAMES)})"


def _word(random: random.Random, word: str) -> str:
    return random.choice((word, word, word.lower(), word.title()))


def write_golden() -> None:
    """Ask the official module, write GOLDEN."""
    from .official import JavaPeer

    texts = corpus(GOLDEN_SEED, GOLDEN_COUNT)
    with tempfile.TemporaryDirectory() as directory:
        java = JavaPeer(Path(directory))
        try:
            results = java("sql-filter", expressions=texts, properties=MESSAGES)
        finally:
            java.close()
    rows = [[text, result] for text, result in zip(texts, results, strict=True)]
    lines = ",\n".join(json.dumps(row) for row in rows)
    messages = json.dumps(MESSAGES)
    GOLDEN.write_text(f'{{"messages": {messages},\n"expressions": [\n{lines}\n]}}\n')
    compiled = sum(result != "!" for result in results)
    print(f"{len(rows)} expressions, {compiled} of them right", file=sys.stderr)


if __name__ == "__main__":
    write_golden()
