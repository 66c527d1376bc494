"""The audit log's lines are bounded, and so is the work for one."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.auth.audit import audit
from pocketmq.message import fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response


def test_no_more_names_are_described_than_a_line_has(caplog: pytest.LogCaptureFixture) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    groups = [{"groupName": f"group-{number}"} for number in range(10_000)]
    request: Request[Any] = Request(
        code=code,
        header=Header(),
        opaque=1,
        body=fastjson.encode({"groupConfigList": groups}),
        connection=SimpleNamespace(peer=("127.0.0.1", 5)),
    )
    dispatcher = Dispatcher()
    dispatcher.register(code, lambda request: Response())
    audit(dispatcher)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    with caplog.at_level(logging.INFO, "pocketmq.audit"):
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            dispatcher.dispatch(request)
        finally:
            sys.setprofile(before)
    (line,) = caplog.messages
    assert "Group:group-0 Group:group-1 " in line
    assert "... by an anonymous client from 127.0.0.1:5: done" in line
    assert calls < len(groups)
