from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.answers.success_answer import success_answer
from pocketmq.remoting.frames.frame import SerializeType
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.request import Request, Response


@given(st.integers(-(2**31), 2**31 - 1))
def test_the_fixed_text_is_that_of_a_response(opaque: int) -> None:
    request = Request(200051, Header(), opaque)
    assert success_answer(request) == Response().head(0, opaque, 0)


def test_other_forms_are_left_to_the_response() -> None:
    request = Request(15, Header(), serialize_type=SerializeType.ROCKETMQ)
    assert success_answer(request) == Response()
