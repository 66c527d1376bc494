"""Servers that listen beyond this machine and ask nobody for a signature say so."""

from __future__ import annotations

import logging

import pytest

from pocketmq.embedded import EmbeddedServer
from tests.security.conftest import PROPERTIES

WARNING = " listens on 0.0.0.0 without authentication"


@pytest.mark.parametrize(
    ("properties", "warned"),
    [
        ({}, ["the broker", "the name server", "the proxy"]),
        # Grants are not needed: the warning is about strangers.
        ({"authenticationEnabled": "true"}, []),
        (PROPERTIES, []),
    ],
)
async def test_each_exposed_server_warns_once(
    properties: dict[str, str], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with EmbeddedServer(
            bind="0.0.0.0", advertise="127.0.0.1", grpc_port=0, properties=properties
        ):
            pass
    lines = [line for line in caplog.messages if WARNING in line]
    assert sorted(line.partition(WARNING)[0] for line in lines) == warned
