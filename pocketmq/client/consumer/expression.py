"""The filter of a subscription: tags, or a SQL92 condition on properties."""

from __future__ import annotations

import re

import msgspec

from pocketmq.client.errors import InvalidName
from pocketmq.client.parameters import text
from pocketmq.message.tags import SUBSCRIBE_ALL, TagExpression, TagExpressionError

TAG = "TAG"
SQL92 = "SQL92"


class Expression(msgspec.Struct, frozen=True):
    """`type` is TAG or SQL92, `text` the expression. The client filters again by `tags`, because
    brokers compare only hashes; with SQL92, which only brokers evaluate, `tags` accepts all."""

    type: str
    text: str
    tags: TagExpression

    @classmethod
    def of(cls, tags: str = SUBSCRIBE_ALL, sql: str | None = None) -> Expression:
        """Return the expression for "TagA || TagB" or for a SQL92 condition.

        Raises:
            InvalidName: it is malformed, or both are given.
            TypeError: it is not a text.
        """
        text("tags", tags, empty=True)
        if "|" in tags.replace("||", ""):
            joined = re.sub("[|]+", "||", tags)
            raise InvalidName(
                f"tags {tags!r} has a single |: write {joined!r} for messages of any of these tags"
            )
        if sql is not None:
            text("sql", sql, empty=True)
        try:
            expression = TagExpression(tags)
        except TagExpressionError as error:
            raise InvalidName(str(error)) from None
        if sql is None:
            return cls(TAG, expression.text, expression)
        if not expression.matches_all:
            raise InvalidName(f"either tags ({tags!r}) or SQL92 ({sql!r}), not both")
        if not sql.strip():
            raise InvalidName("the SQL92 condition is empty")
        return cls(SQL92, sql, expression)


EVERYTHING = Expression.of()
