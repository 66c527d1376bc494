"""Which hosts and which origins a request may name."""

from __future__ import annotations

import pytest

from pocketmq.dashboard.guard import HEADERS, is_own_host, is_own_origin

NAMES = {"queues.example.com"}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8180",
        "127.0.0.1",
        "[::1]:8180",
        "192.0.2.7:8180",
        "localhost:8180",
        "LOCALHOST",
        "dash.localhost:1",
        "queues.example.com",
        "Queues.Example.com:443",
        "queues.example.com.",
    ],
)
def test_own_hosts(host: str) -> None:
    assert is_own_host(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8180",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "queues.example.com.evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1:port",
        "127.0.0.1/evil",
        "127.0.0.1:8180?x",
        "[::1",
        "2130706433",
    ],
)
def test_hosts_of_others(host: str) -> None:
    assert not is_own_host(host, NAMES)


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"Origin": "http://127.0.0.1:8180"}, True),
        ({"Origin": "http://127.0.0.1:8180", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://127.0.0.1:9999"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_origins(headers: dict[str, str], own: bool) -> None:
    assert is_own_origin(headers, "127.0.0.1:8180") is own


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    for word in ("http", "unsafe", "data:", "*"):
        assert word not in policy
