"""The meaning of the parts of an expression, as nested Python closures over a message's properties.

Logic is three-valued: true, false, None for unknown. The operands of a comparison are checked when
it is put together, as the reference does, so that a wrong expression fails at subscription and not
when messages come. Reference: the expression package of RocketMQ's filter module; its tests of
operands are reproduced one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Final

from pocketmq.message.properties import NAME_VALUE_SEPARATOR
from pocketmq.message.sql_filter.values import Long, Value, compare, compare_ordered, equal

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

#: If an expression is true for a message, the encoded properties of the message contain at least
#: one of these texts; None if there are no such texts.
Needs = frozenset[str] | None

#: More texts than this select little, and each has to be searched for.
MOST_NEEDS: Final = 8

#: Maximum cost of all comparisons of an expression, and the cost of a comparison that searches a
#: text: they bound the time that an expression takes for a message.
MAX_COST: Final = 512
_SEARCH_COST: Final = 8
_SHORT_SEARCH, _LONG_SEARCH = 20, 100

#: Maximum nesting of operators: each level is a call within a call.
MAX_DEPTH: Final = 200


class OperandError(ValueError):
    """An operand that its operator does not take; the text says which."""


class Kind(Enum):
    """What is known of an operand when an expression is compiled."""

    CONSTANT = auto()
    PROPERTY = auto()
    BOOLEAN = auto()
    """Gives true, false or unknown."""
    NUMBER = auto()
    """A negated expression: a number or unknown."""


class Expression:
    """A part of an expression, ready to be evaluated.

    Attributes:
        value: of a constant.
        name: of a property.
        operator: AND or OR of a chain of them, else "".
        terms: that chain's. It grows in length, not in depth.
        cost: the number of comparisons.
        needs: what a message must have for it to be true.
    """

    __slots__ = ("cost", "depth", "evaluate", "kind", "name", "needs", "operator", "terms", "value")

    def __init__(
        self,
        kind: Kind,
        evaluate: Evaluate,
        parts: Sequence[Expression] = (),
        *,
        value: Value = None,
        name: str = "",
        operator: str = "",
        needs: Needs = None,
        cost: int = 0,
    ) -> None:
        self.needs = needs
        self.kind = kind
        self.evaluate = evaluate
        self.depth: int = 1 + max((part.depth for part in parts), default=0)
        self.cost: int = cost + sum(part.cost for part in parts)
        self.value = value
        self.name = name
        self.operator = operator
        self.terms: list[Evaluate] = []
        _check_cost(self.cost)
        if self.depth > MAX_DEPTH:
            raise OperandError(f"more than {MAX_DEPTH} operators within each other")

    @property
    def is_boolean(self) -> bool:
        """Whether AND, OR and NOT take it as it is, as they do TRUE, FALSE and NULL."""
        return self.kind is Kind.BOOLEAN or (
            self.kind is Kind.CONSTANT and (self.value is None or type(self.value) is bool)
        )

    def __str__(self) -> str:
        if self.kind is Kind.PROPERTY:
            return self.name
        if self.kind is not Kind.CONSTANT:
            return "the expression"
        if type(self.value) is str:
            return "'" + self.value.replace("'", "''") + "'"
        return "NULL" if self.value is None else str(self.value).upper()


def constant(value: Value) -> Expression:
    """Make an operand of a literal."""
    return Expression(Kind.CONSTANT, lambda _: value, value=value)


def variable(name: str) -> Expression:
    """Make an operand of a property; it is unknown for messages without the property."""
    return Expression(Kind.PROPERTY, lambda properties: properties.get(name), name=name)


def as_boolean(operand: Expression) -> Expression:
    """Return `operand` as a truth value: a property, being a string, is then false."""
    if operand.is_boolean:
        return operand
    if operand.kind is not Kind.PROPERTY:
        raise OperandError(f"{operand} is neither true nor false")
    name = operand.name
    return _boolean(lambda properties: None if properties.get(name) is None else False, operand)


def negate(operand: Expression) -> Expression:
    """`-` before a number; anything else becomes unknown."""
    inner = operand.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        kind = type(value)
        if kind is float or kind is int:
            return -value  # type: ignore[operator]
        return Long(-value) if kind is Long else None  # type: ignore[operator]

    return Expression(Kind.NUMBER, evaluate, (operand,))


def negation(operand: Expression) -> Expression:
    """NOT."""
    inner = as_boolean(operand).evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return _boolean(evaluate, operand)


def chain(operator: str, left: Expression, right: Expression) -> Expression:
    """AND, OR: terms are evaluated from left to right until one decides.

    A chain on the left side is extended, and must not be used on its own any more.
    """
    left, right = as_boolean(left), as_boolean(right)
    needs = (_both if operator == "AND" else _either)(left.needs, right.needs)
    if left.operator == operator:
        left.terms.append(right.evaluate)
        left.depth = max(left.depth, right.depth + 1)
        left.cost += right.cost
        _check_cost(left.cost)
        left.needs = needs
        return left
    terms = [left.evaluate, right.evaluate]
    decisive = operator == "OR"

    def evaluate(properties: Properties) -> Value:
        result: Value = not decisive
        for term in terms:
            value = term(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    joined = Expression(Kind.BOOLEAN, evaluate, (left, right), operator=operator, needs=needs)
    joined.terms = terms
    return joined


def equality(left: Expression, right: Expression) -> Expression:
    """`=`."""
    for operand in (left, right):
        if operand.kind is Kind.CONSTANT and operand.value is None:
            raise OperandError("NULL cannot be compared, use IS NULL")
    if left.kind is right.kind is Kind.CONSTANT and left.is_boolean and not right.is_boolean:
        raise OperandError(f"{left} cannot be compared with {right}")
    first, second = left.evaluate, right.evaluate
    needs: Needs = None
    # Two properties also count as equal if a message has neither.
    for one, other in ((left, right), (right, left)):
        if one.kind is Kind.PROPERTY and other.kind is Kind.CONSTANT:
            needs = _property(one, other.value if type(other.value) is str else "")
    return _boolean(
        lambda properties: equal(first(properties), second(properties)), left, right, needs=needs
    )


def is_null(operand: Expression) -> Expression:
    """IS NULL."""
    inner = operand.evaluate
    return _boolean(lambda properties: inner(properties) is None, operand)


def is_not_null(operand: Expression) -> Expression:
    """IS NOT NULL."""
    inner = operand.evaluate
    return _boolean(
        lambda properties: inner(properties) is not None, operand, needs=_property(operand)
    )


_HOLDS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
}


def ordering(operator: str, left: Expression, right: Expression) -> Expression:
    """`<`, `<=`, `>`, `>=`: between numbers and what can be read as one."""
    for operand in (left, right):
        if operand.is_boolean or type(operand.value) is str:
            raise OperandError(f"{operand} cannot be compared by {operator}")
    first, second, holds = left.evaluate, right.evaluate, _HOLDS[operator]

    def evaluate(properties: Properties) -> Value:
        low = first(properties)
        if low is None:
            return None
        high = second(properties)
        return None if high is None else holds(compare_ordered(low, high))

    needs = _both(_property(left), _property(right))
    return _boolean(evaluate, left, right, needs=needs)


def between(operand: Expression, low: Expression, high: Expression) -> Expression:
    """`BETWEEN low AND high`, both included."""
    if low.kind is high.kind is Kind.CONSTANT:
        if low.value is None or high.value is None:
            raise OperandError("the bounds of BETWEEN cannot be NULL")
        if compare(high.value, low.value) < 0:
            raise OperandError(f"the bounds of BETWEEN are the wrong way round: {low}, {high}")
    return chain("AND", ordering(">=", operand, low), ordering("<=", operand, high))


def not_between(operand: Expression, low: Expression, high: Expression) -> Expression:
    """`NOT BETWEEN low AND high`."""
    return chain("OR", ordering("<", operand, low), ordering(">", operand, high))


def within(operand: Expression, choices: Sequence[str], *, wanted: bool) -> Expression:
    """`IN (...)`; with `wanted` False `NOT IN (...)`."""
    if operand.kind is not Kind.PROPERTY:
        raise OperandError(f"IN is for properties, not for {operand}")
    name, among = operand.name, frozenset(choices)

    def evaluate(properties: Properties) -> Value:
        value = properties.get(name)
        return None if value is None else (value in among) is wanted

    needs = _property(operand)
    if wanted and len(among) <= MOST_NEEDS:
        needs = frozenset(f"{name}{NAME_VALUE_SEPARATOR}{value}" for value in among)
    return _boolean(evaluate, operand, needs=needs)


_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": lambda text, search: text.startswith(search),
    "ENDSWITH": lambda text, search: text.endswith(search),
}


def text_test(operator: str, operand: Expression, search: str, *, wanted: bool) -> Expression:
    """CONTAINS, STARTSWITH, ENDSWITH, and with `wanted` False their opposites: never unknown, but
    false for values that are not strings and for an empty `search`."""
    inner, test = operand.evaluate, _TEXT_TESTS[operator]

    def evaluate(properties: Properties) -> Value:
        if not search:
            return False
        value = inner(properties)
        return type(value) is str and test(value, search) is wanted

    cost = _SEARCH_COST
    if operator == "CONTAINS":
        # Each place of a text may have to be compared with most of a short search text; for longer
        # ones Python has a better way.
        cost += max(0, min(len(search), _LONG_SEARCH) - _SHORT_SEARCH) // 2
    return _boolean(evaluate, operand, needs=_property(operand), cost=cost)


def _boolean(
    evaluate: Evaluate, *parts: Expression, needs: Needs = None, cost: int = 1
) -> Expression:
    return Expression(Kind.BOOLEAN, evaluate, parts, needs=needs, cost=cost)


def _check_cost(cost: int) -> None:
    if cost > MAX_COST:
        raise OperandError(
            f"more than {MAX_COST} comparisons, where a search counts as {_SEARCH_COST}"
        )


def _property(operand: Expression, value: str = "") -> Needs:
    """Return what a message must have for its property `operand` to begin with `value`."""
    if operand.kind is not Kind.PROPERTY:
        return None
    return frozenset((f"{operand.name}{NAME_VALUE_SEPARATOR}{value}",))


def _both(left: Needs, right: Needs) -> Needs:
    """Return what a message must have if both are needed: the rarer one, as far as visible."""
    if left is None or right is None:
        return left or right
    return max(left, right, key=lambda needs: min(map(len, needs)))


def _either(left: Needs, right: Needs) -> Needs:
    if left is None or right is None or len(left | right) > MOST_NEEDS:
        return None
    return left | right
