"""Finds the columns that a query needs, and runs it on a DataFrame that reads no others.

Spark does not tell a Python source which columns a query uses, so the source reads all of them. The
optimized plan shows them: the query is planned once with all columns, and built again with those it
needs. Nothing is cached: each call plans its own query, and the given DataFrame does not change.

The plan is available in classic PySpark only, not with Spark Connect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from pocketmq.spark.schema import ddl_of
from pocketmq.spark.source import RocketMQDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Operators that pass on columns from below only through their own expressions.
_ENDS: Final = frozenset({"Project", "Aggregate"})
#: Operators that pass on the columns from below with the same ids.
_HANDS_ON: Final = frozenset(
    {
        "Filter",
        "Generate",
        "GlobalLimit",
        "Join",
        "LocalLimit",
        "Offset",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Window",
    }
)
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
FEWEST: Final = "queueId"
"""Read by a query that needs no column: the smallest of all columns."""


def pruned(frame: DataFrame, query: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Return `query(frame)`, but read only the columns it needs.

        orders = spark.read.format("rocketmq").option("subscribe", "orders").load("./store")
        pruned(orders, lambda orders: orders.groupBy("tags").count()).show()

    Args:
        frame: as `load` returns it, with any options.
        query: makes a DataFrame from the given one. It is called twice, so it should do nothing
            else. It may also be SQL: `lambda t: spark.sql("SELECT ... FROM {t}", t=t)`.

    If the query needs all columns, or Spark does not say which, as with Spark Connect, you get
    `query(frame)` itself. A query without columns, such as a count, reads the consume queues alone.

    Raises ValueError if `frame` was not made by `load` alone.
    """
    whole = query(frame)
    if not hasattr(frame, "_jdf"):
        return whole
    own = list(_leaves(frame._jdf.queryExecution().analyzed()))
    if len(own) != 1 or frame._jdf.queryExecution().analyzed().children().size():
        raise ValueError("need a DataFrame as spark.read.format('rocketmq').load(...) returns it")
    names = needed(whole)
    if names is None or set(names) >= set(frame.columns):
        return whole
    names = [name for name in frame.columns if name in names]
    reader = frame.sparkSession.read.format(RocketMQDataSource.name())
    narrow = reader.options(**_options(own[0])).schema(ddl_of(names)).load()
    with contextlib.suppress(AnalysisException):
        found = query(narrow)
        if found.schema == whole.schema:  # `*` may stand for fewer columns now
            return found
    return whole


def needed(frame: DataFrame) -> list[str] | None:
    """Return the columns that a query needs from all its `rocketmq` sources together, in the order
    of the source; `FEWEST` if it needs none, None if that is unknown or it has no such source.

    They are the same for all sources, so that `*` still stands for the same columns of each.
    """
    if not hasattr(frame, "_jdf"):
        return None
    with _without_pushdown(frame.sparkSession):
        plan = frame._jdf.queryExecution().optimizedPlan()
    walk = _Walk()
    walk.down(plan, all_needed=True)
    if not walk.columns:
        return None
    found = [name for id_, name in walk.columns if walk.takes_all or id_ in walk.references]
    return list(dict.fromkeys(found)) or [FEWEST]


class _Walk:
    """One walk through an optimized plan.

    Attributes:
        references: ids of the attributes that operators use in their expressions.
        columns: ids and names of the columns of `rocketmq` sources.
        takes_all: whether an operator takes all columns of one of them unchanged.
    """

    def __init__(self) -> None:
        self.references: set[int] = set()
        self.columns: list[tuple[int, str]] = []
        self.takes_all = False

    def down(self, plan: Any, *, all_needed: bool) -> None:
        """Visit an operator and those below. `all_needed`: whether all its columns are used."""
        if _is_ours(plan):
            self.columns += [(at.exprId().id(), at.name()) for at in _items(plan.output())]
            self.takes_all |= all_needed
            return
        self.references.update(at.exprId().id() for at in _items(plan.references().toSeq()))
        for inner in _items(plan.subqueries()):
            self.down(inner, all_needed=True)
        kind = plan.getClass().getSimpleName()
        # Others, such as unions, may use columns by position.
        below = kind not in _ENDS and (all_needed or kind not in _HANDS_ON)
        for child in _items(plan.children()):
            self.down(child, all_needed=below)


def _leaves(plan: Any) -> Iterator[Any]:
    """Return the `rocketmq` sources in a plan."""
    if _is_ours(plan):
        yield plan
    for child in _items(plan.children()):
        yield from _leaves(child)


def _is_ours(plan: Any) -> bool:
    kind = plan.getClass().getSimpleName()
    if kind not in ("DataSourceV2Relation", "DataSourceV2ScanRelation"):
        return False
    relation = plan.relation() if kind == "DataSourceV2ScanRelation" else plan
    return bool(relation.table().name() == RocketMQDataSource.name())


def _options(relation: Any) -> dict[str, str]:
    return dict(relation.options().asCaseSensitiveMap())


def _items(sequence: Any) -> Iterator[Any]:
    for number in range(sequence.size()):
        yield sequence.apply(number)


@contextlib.contextmanager
def _without_pushdown(spark: SparkSession) -> Iterator[None]:
    """Disable push-down for a plan that is only inspected: it would read the store."""
    before = spark.conf.get(_PUSHDOWN, "false") or "false"
    spark.conf.set(_PUSHDOWN, "false")
    try:
        yield
    finally:
        spark.conf.set(_PUSHDOWN, before)
