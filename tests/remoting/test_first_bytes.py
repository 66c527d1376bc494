from __future__ import annotations

import pytest

from pocketmq.remoting.frames.first_bytes import FirstBytes, explain, recognise

PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET / HTTP/1.1\r\n", FirstBytes.HTTP),
        (b"POST /rocketmq HTTP/1.1\r\n", FirstBytes.HTTP),
        (b"OPTIONS * HTTP/1.1\r\n", FirstBytes.HTTP),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FirstBytes.GRPC),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", FirstBytes.TLS),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 9876\r\n", FirstBytes.PROXY_PROTOCOL),
        (PROXY_V2, FirstBytes.PROXY_PROTOCOL),
        (b"\x00\x00\x01\x10", FirstBytes.REMOTING),
        (b"\x00", FirstBytes.REMOTING),
        (b"SSH-2.0-OpenSSH_9.6\r\n", FirstBytes.REMOTING),
        (b"\xff\xff\xff\xff", FirstBytes.REMOTING),
        (b"\x16\x99", FirstBytes.REMOTING),
    ],
)
def test_names_the_protocol(data: bytes, kind: FirstBytes) -> None:
    assert recognise(data) is kind


@pytest.mark.parametrize("whole", [b"GET ", b"PRI * HTTP/2", b"PROXY ", PROXY_V2[:12], b"\x16\x03"])
def test_waits_while_a_signature_may_follow(whole: bytes) -> None:
    for length in range(len(whole)):
        assert recognise(whole[:length]) is FirstBytes.UNDECIDED
    assert recognise(whole) not in (FirstBytes.UNDECIDED, FirstBytes.REMOTING)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (FirstBytes.HTTP, "8082"),
        (FirstBytes.GRPC, "8081"),
        (FirstBytes.TLS, "tls.enable=false"),
        (FirstBytes.PROXY_PROTOCOL, "send-proxy"),
    ],
)
def test_the_log_line_says_where_to_go(kind: FirstBytes, words: str) -> None:
    line = explain(kind, 9876, "name server")
    assert "9876" in line
    assert "name server" in line
    assert kind.value in line
    assert words in line
