# The public names of pocketmq, each listed once: type checkers read this file, and
# pocketmq/_lazy.py reads it at run time. Names that few programs need go to a sub-module.

from pocketmq._version import __version__ as __version__
from pocketmq.archive.open_store import open_store as open_store
from pocketmq.client.admin import Admin as Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage as ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer as PullConsumer
from pocketmq.client.consumer.push import PushConsumer as PushConsumer
from pocketmq.client.consumer.router import Router as Router
from pocketmq.client.credentials import Credentials as Credentials
from pocketmq.client.errors import BatchSendError as BatchSendError
from pocketmq.client.errors import NoNameServer as NoNameServer
from pocketmq.client.errors import NoRouteInfo as NoRouteInfo
from pocketmq.client.errors import NotRunning as NotRunning
from pocketmq.client.errors import RemotingError as RemotingError
from pocketmq.client.errors import RemotingTimeout as RemotingTimeout
from pocketmq.client.errors import RequesterGone as RequesterGone
from pocketmq.client.errors import RequestTimeout as RequestTimeout
from pocketmq.client.errors import SendError as SendError
from pocketmq.client.errors import SendTimeout as SendTimeout
from pocketmq.client.errors import Unavailable as Unavailable
from pocketmq.client.producer.producer import Producer as Producer
from pocketmq.client.producer.transaction import TransactionProducer as TransactionProducer
from pocketmq.client.producer.transaction import TransactionState as TransactionState
from pocketmq.client.reconsume_later import ReconsumeLater as ReconsumeLater
from pocketmq.client.send_result import SendResult as SendResult
from pocketmq.message.message import Message as Message
from pocketmq.message.message import MessageExt as MessageExt
from pocketmq.message.message import MessageQueue as MessageQueue

from . import codes as codes
from . import embedded as embedded
from . import errors as errors
from . import hooks as hooks
from . import rebalance as rebalance
from . import selector as selector
from . import spark as spark
from . import sync as sync
from . import telemetry as telemetry
from . import testing as testing
from . import types as types
