"""The filters that requests of POP consumption carry with them."""

from __future__ import annotations

from pocketmq.broker.pop.long_polling import EVERYTHING, Filter
from pocketmq.broker.tables.consumer_filter import codes_of, is_tag_type, ready_filter
from pocketmq.message.sql_filter import SqlSyntaxError
from pocketmq.message.tags import TagExpressionError
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError


def requested_filter(expression: str | None, expression_type: str | None) -> Filter:
    """Return the filter of an expression.

    Raises NotCompiled for a new SQL92 expression of some length, and RemotingError
    (SUBSCRIPTION_PARSE_FAILED).
    """
    if not expression or expression == "*":
        return EVERYTHING
    try:
        if is_tag_type(expression_type):
            return Filter(codes_of(expression))
        return Filter(None, ready_filter(expression, expression_type))
    except (TagExpressionError, SqlSyntaxError) as error:
        raise RemotingError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed: {error}",
        ) from None
