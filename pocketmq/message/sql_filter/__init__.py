"""SQL92 expressions over message properties, as RocketMQ's brokers use them.

Grammar and meaning are those of Apache RocketMQ 5.3.3 (its filter module), including the unusual
parts: properties are strings and become numbers when compared with one; an operand that is not a
number makes the whole expression undecided; `NOT a = 1` reads as `(NOT a) = 1`; anything after a
complete expression is ignored. `filter` is the interface, `parser` has the grammar, `expression`
its meaning, `values` the comparison of two values.
"""

from __future__ import annotations

from pocketmq.message.sql_filter.errors import SqlSyntaxError
from pocketmq.message.sql_filter.filter import (
    FILTER_WORK,
    SqlFilter,
    compile_sql,
    compile_steps,
    cost_of,
    known_sql,
    load_parser,
    work_of,
)

__all__ = [
    "FILTER_WORK",
    "SqlFilter",
    "SqlSyntaxError",
    "compile_sql",
    "compile_steps",
    "cost_of",
    "known_sql",
    "load_parser",
    "work_of",
]
