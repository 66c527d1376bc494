"""Codes of the RocketMQ protocol, with the names of the reference."""

from __future__ import annotations

from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode

__all__ = [
    "LanguageCode",
    "RequestCode",
    "ResponseCode",
]
