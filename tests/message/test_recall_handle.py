"""Recall handles: their text, and what is none."""

from __future__ import annotations

import base64

import pytest

from pocketmq.message.recall_handle import RecallHandle, RecallHandleError, decode_recall_handle


def test_the_text_of_a_handle() -> None:
    handle = RecallHandle("Topic-1", "broker", "1700000000001", "0A0B")
    text = handle.encode()
    assert base64.urlsafe_b64decode(text) == b"v1 Topic-1 broker 1700000000001 0A0B"
    assert decode_recall_handle(text) == handle


def test_more_words_and_no_padding_are_read() -> None:
    text = base64.urlsafe_b64encode(b"v1 T b 1 U more").decode().rstrip("=")
    assert decode_recall_handle(text) == RecallHandle("T", "b", "1", "U")


@pytest.mark.parametrize("words", [b"", b"v1 T b 1", b"v2 T b 1 U", b"\xff v1"])
def test_what_is_no_handle(words: bytes) -> None:
    with pytest.raises(RecallHandleError):
        decode_recall_handle(base64.urlsafe_b64encode(words).decode())


@pytest.mark.parametrize("text", ["é", "a", "v1 T b 1 U", "+/=="])
def test_what_is_no_base64(text: str) -> None:
    with pytest.raises(RecallHandleError):
        decode_recall_handle(text)
