"""The grammar, for lark's LALR parser. Importing lark and building its tables takes a tenth of a
second, so `filter` imports this module when the first expression comes.

Reference: SelectorParser.jj. The reference stops at the first token that cannot continue a
complete expression; so does `parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from pocketmq.message.sql_filter import expression as meaning
from pocketmq.message.sql_filter.errors import SqlSyntaxError
from pocketmq.message.sql_filter.expression import Expression, OperandError
from pocketmq.message.sql_filter.values import INTEGER_MAX, LONG_MAX, Incomparable, Long

_GRAMMAR: Final = r"""
?start: either

?either: both
    | either OR both                               -> chain
?both: equality
    | both AND equality                            -> chain
?equality: comparison
    | equality EQUAL comparison                    -> equal
    | equality NOT_EQUAL comparison                -> not_equal
    | equality IS NULL                             -> is_null
    | equality IS NOT NULL                         -> is_not_null
?comparison: unary
    | comparison (LESS | LESS_OR_EQUAL | GREATER | GREATER_OR_EQUAL) unary -> ordering
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING     -> text_test
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> not_text_test
    | comparison BETWEEN unary AND unary           -> between
    | comparison NOT BETWEEN unary AND unary       -> not_between
    | comparison IN "(" STRING ("," STRING)* ")"   -> within
    | comparison NOT IN "(" STRING ("," STRING)* ")" -> not_within
?unary: primary
    | "+" unary
    | MINUS unary                                  -> negate
    | NOT unary                                    -> negation
?primary: STRING                                   -> string
    | DECIMAL                                      -> decimal
    | FLOATING_POINT                               -> floating_point
    | TRUE                                         -> true
    | FALSE                                        -> false
    | NULL                                         -> null
    | ID                                           -> variable
    | "(" either ")"

EQUAL: "="
NOT_EQUAL: "<>"
LESS_OR_EQUAL: "<="
GREATER_OR_EQUAL: ">="
LESS: "<"
GREATER: ">"
MINUS: "-"
STRING: /'(?:''|[^'])*'/
FLOATING_POINT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.1: /0|[1-9][0-9]*[lL]?/
ID: /[a-zA-Z_$][a-zA-Z0-9_$]*/
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.1: /--[^\n\r]{0,1000}(?:\r\n|\n|\r)/
BLOCK_COMMENT: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%declare NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH
"""  # noqa: E501

# A line comment has an end and a bounded length: each of many minus signs might begin one, and
# the lexer searches for the end from each.

MAX_TOKENS: Final = 8192
"""Words, numbers and signs of an expression: each takes about 10 µs to compile."""

_KEYWORDS: Final = frozenset(
    (
        "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS",
        "CONTAINS", "STARTSWITH", "ENDSWITH",
    )
)  # fmt: skip


def _keyword(token: Token) -> Token:
    """Keywords are identifiers to the lexer, in either case."""
    upper = token.upper()
    return Token.new_borrow_pos(upper, upper, token) if upper in _KEYWORDS else token


def _text(literal: str) -> str:
    return literal[1:-1].replace("''", "'")


def _at(token: Token, build: Callable[[], Expression]) -> Expression:
    """Return the result of `build`; report an operand that does not fit at `token`."""
    try:
        return build()
    except (OperandError, Incomparable) as error:
        raise SqlSyntaxError(token.line or 1, token.column or 1, str(error)) from None


class _Builder(Transformer[Any, Any]):
    """Puts expressions together as the parser recognises them; one method per grammar rule."""

    def chain(self, parts: list[Any]) -> Expression:
        left, operator, right = parts
        return _at(operator, lambda: meaning.chain(str(operator), left, right))

    def equal(self, parts: list[Any]) -> Expression:
        left, operator, right = parts
        return _at(operator, lambda: meaning.equality(left, right))

    def not_equal(self, parts: list[Any]) -> Expression:
        left, operator, right = parts
        return _at(operator, lambda: meaning.negation(meaning.equality(left, right)))

    def is_null(self, parts: list[Any]) -> Expression:
        return _at(parts[1], lambda: meaning.is_null(parts[0]))

    def is_not_null(self, parts: list[Any]) -> Expression:
        return _at(parts[1], lambda: meaning.is_not_null(parts[0]))

    def ordering(self, parts: list[Any]) -> Expression:
        left, operator, right = parts
        return _at(operator, lambda: meaning.ordering(str(operator), left, right))

    def text_test(self, parts: list[Any], *, wanted: bool = True) -> Expression:
        operand, operator, search = parts[0], parts[-2], _text(parts[-1])
        return _at(
            operator, lambda: meaning.text_test(str(operator), operand, search, wanted=wanted)
        )

    def not_text_test(self, parts: list[Any]) -> Expression:
        return self.text_test(parts, wanted=False)

    def between(self, parts: list[Any]) -> Expression:
        operand, operator, low, _, high = parts
        return _at(operator, lambda: meaning.between(operand, low, high))

    def not_between(self, parts: list[Any]) -> Expression:
        operand, operator, _, low, _, high = parts
        return _at(operator, lambda: meaning.not_between(operand, low, high))

    def within(self, parts: list[Any]) -> Expression:
        operand, operator, *choices = parts
        texts = [_text(choice) for choice in choices]
        return _at(operator, lambda: meaning.within(operand, texts, wanted=True))

    def not_within(self, parts: list[Any]) -> Expression:
        operand, operator, _, *choices = parts
        texts = [_text(choice) for choice in choices]
        return _at(operator, lambda: meaning.within(operand, texts, wanted=False))

    def negate(self, parts: list[Any]) -> Expression:
        return _at(parts[0], lambda: meaning.negate(parts[1]))

    def negation(self, parts: list[Any]) -> Expression:
        return _at(parts[0], lambda: meaning.negation(parts[1]))

    def string(self, parts: list[Any]) -> Expression:
        return meaning.constant(_text(parts[0]))

    def decimal(self, parts: list[Any]) -> Expression:
        [token] = parts
        digits = token.rstrip("lL")
        # 19 digits hold every Long; longer texts are known to be larger.
        number = int(digits) if len(digits) < 20 else LONG_MAX + 1
        if number > LONG_MAX:
            raise SqlSyntaxError(token.line, token.column, f"{token[:80]} is greater than any Long")
        return meaning.constant(number if number <= INTEGER_MAX else Long(number))

    def floating_point(self, parts: list[Any]) -> Expression:
        [token] = parts
        number = float(token)
        if not 0.0 < number < float("inf"):
            raise SqlSyntaxError(
                token.line, token.column, f"{token[:80]} is not a Double greater than zero"
            )
        return meaning.constant(number)

    def true(self, _: list[Any]) -> Expression:
        return meaning.constant(True)

    def false(self, _: list[Any]) -> Expression:
        return meaning.constant(False)

    def null(self, _: list[Any]) -> Expression:
        return meaning.constant(None)

    def variable(self, parts: list[Any]) -> Expression:
        return meaning.variable(str(parts[0]))


_PARSER: Final = Lark(
    _GRAMMAR,
    parser="lalr",
    lexer="basic",
    transformer=_Builder(),
    lexer_callbacks={"ID": _keyword},
    maybe_placeholders=False,
)

_END: Final = "$END"
_NAMES: Final = {
    "COMMA": "','", "EQUAL": "'='", "NOT_EQUAL": "'<>'", "LESS": "'<'", "LESS_OR_EQUAL": "'<='",
    "GREATER": "'>'", "GREATER_OR_EQUAL": "'>='", "LPAR": "'('", "RPAR": "')'", "MINUS": "'-'",
    "PLUS": "'+'", "STRING": "a string", "DECIMAL": "a number", "FLOATING_POINT": "a number",
    "ID": "a property", _END: "the end",
}  # fmt: skip


TOKENS_OF_STEP: Final = 16
"""Those that are parsed before others have their turn, in less than half a millisecond."""


def parse(text: str) -> Generator[None, None, Expression]:
    """Return the expression that `text` begins with, after some steps. Raises SqlSyntaxError."""
    parsing = _PARSER.parse_interactive(text)
    try:
        try:
            for number, token in enumerate(parsing.iter_parse()):
                if number == MAX_TOKENS:
                    reason = f"more than {MAX_TOKENS} words, numbers and signs"
                    raise SqlSyntaxError(token.line or 1, token.column or 1, reason)
                if number % TOKENS_OF_STEP == TOKENS_OF_STEP - 1:
                    yield
            result = parsing.feed_eof()  # type: ignore[no-untyped-call]
        except UnexpectedToken as error:
            if _END not in parsing.accepts():  # type: ignore[no-untyped-call]
                raise
            result = parsing.feed_eof(error.token)  # type: ignore[no-untyped-call]
    except UnexpectedCharacters as error:
        raise SqlSyntaxError(error.line, error.column, f"unexpected {error.char!r}") from None
    except UnexpectedToken as error:
        raise _unexpected(error, text) from None
    try:
        truth: Expression = meaning.as_boolean(result)
    except OperandError as error:
        raise SqlSyntaxError(1, 1, str(error)) from None
    return truth


def _unexpected(error: UnexpectedToken, text: str) -> SqlSyntaxError:
    wanted = ", ".join(sorted({_NAMES.get(name, name) for name in error.expected}))
    if error.token.type == _END:
        before = text.rstrip()
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        return SqlSyntaxError(line, column, f"unexpected end, expected {wanted}")
    return SqlSyntaxError(
        error.line, error.column, f"unexpected {str(error.token)[:80]!r}, expected {wanted}"
    )
