"""Codes of the RocketMQ protocol, with the names of the reference."""

from pocketmq.remoting.codes import LanguageCode as LanguageCode
from pocketmq.remoting.codes import RequestCode as RequestCode
from pocketmq.remoting.codes import ResponseCode as ResponseCode
