"""docs/compatibility.md: which request codes of Apache RocketMQ 5.3.3 are served, from what the
processors themselves register.

`python -m pocketmq.compatibility > docs/compatibility.md` writes it anew; a test fails when the
file says something else, or when a code is neither served nor explained in `NOT_SERVED`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import Dispatcher

_NOBODY: Final = "no process of release 5.3.3 serves it"
_TO_CLIENTS: Final = "the other way: a broker sends it to a client, which answers"
_REPLICATION: Final = "replication between brokers; a broker here has no copies"
_TIMER_COPIES: Final = "only slaves ask, beside the log that they copy; a broker here has no copies"
_CONTROLLER: Final = "the controller, which elects masters among replicas; there are none here"
_POP: Final = "POP consumption, not there yet; a client told so pulls instead"
_AUTH: Final = "users and access lists, not there yet"
_COLD: Final = "throttles reads of cold data from the disk; the page cache decides here"
_ROCKSDB: Final = "about stores in RocksDB; there are only files here"

#: Why the other codes are not served, by name.
NOT_SERVED: Final[Mapping[str, str]] = {
    "QUERY_BROKER_OFFSET": _NOBODY,
    "GET_TOPIC_CONFIG_LIST": _NOBODY,
    "GET_TOPIC_NAME_LIST": _NOBODY,
    "TRIGGER_DELETE_FILES": _NOBODY,
    "GET_CLIENT_CONFIG": _NOBODY,
    "SUSPEND_CONSUMER": _NOBODY,
    "RESUME_CONSUMER": _NOBODY,
    "RESET_CONSUMER_OFFSET_IN_CONSUMER": _NOBODY,
    "RESET_CONSUMER_OFFSET_IN_BROKER": _NOBODY,
    "ADJUST_CONSUMER_THREAD_POOL": _NOBODY,
    "WHO_CONSUME_THE_MESSAGE": _NOBODY,
    "REGISTER_FILTER_SERVER": _NOBODY,
    "REGISTER_MESSAGE_FILTER_CLASS": _NOBODY,
    "CHECK_TRANSACTION_STATE": _TO_CLIENTS,
    "NOTIFY_CONSUMER_IDS_CHANGED": _TO_CLIENTS,
    "RESET_CONSUMER_CLIENT_OFFSET": _TO_CLIENTS,
    "GET_CONSUMER_STATUS_FROM_CLIENT": _TO_CLIENTS,
    "PUSH_REPLY_MESSAGE_TO_CLIENT": _TO_CLIENTS,
    "NOTIFY_MIN_BROKER_ID_CHANGE": _REPLICATION,
    "EXCHANGE_BROKER_HA_INFO": _REPLICATION,
    "RESET_MASTER_FLUSH_OFFSET": _REPLICATION,
    "GET_TIMER_CHECK_POINT": _TIMER_COPIES,
    "GET_TIMER_METRICS": _TIMER_COPIES,
    "GET_BROKER_EPOCH_CACHE": _REPLICATION,
    "NOTIFY_BROKER_ROLE_CHANGED": _REPLICATION,
    "ADD_BROKER": "broker containers; a process here is one broker",
    "REMOVE_BROKER": "broker containers; a process here is one broker",
    "CONTROLLER_ALTER_SYNC_STATE_SET": _CONTROLLER,
    "CONTROLLER_ELECT_MASTER": _CONTROLLER,
    "CONTROLLER_REGISTER_BROKER": _CONTROLLER,
    "CONTROLLER_GET_REPLICA_INFO": _CONTROLLER,
    "CONTROLLER_GET_METADATA_INFO": _CONTROLLER,
    "CONTROLLER_GET_SYNC_STATE_DATA": _CONTROLLER,
    "UPDATE_CONTROLLER_CONFIG": _CONTROLLER,
    "GET_CONTROLLER_CONFIG": _CONTROLLER,
    "CLEAN_BROKER_DATA": _CONTROLLER,
    "CONTROLLER_GET_NEXT_BROKER_ID": _CONTROLLER,
    "CONTROLLER_APPLY_BROKER_ID": _CONTROLLER,
    "BROKER_CLOSE_CHANNEL_REQUEST": _CONTROLLER,
    "CHECK_NOT_ACTIVE_BROKER_REQUEST": _CONTROLLER,
    "GET_BROKER_LIVE_INFO_REQUEST": _CONTROLLER,
    "GET_SYNC_STATE_DATA_REQUEST": _CONTROLLER,
    "RAFT_BROKER_HEART_BEAT_EVENT_REQUEST": _CONTROLLER,
    "CHECK_ROCKSDB_CQ_WRITE_PROGRESS": _ROCKSDB,
    "EXPORT_ROCKSDB_CONFIG_TO_JSON": _ROCKSDB,
    "UPDATE_AND_CREATE_STATIC_TOPIC": "static topics, whose queues move between brokers",
    "UPDATE_COLD_DATA_FLOW_CTR_CONFIG": _COLD,
    "REMOVE_COLD_DATA_FLOW_CTR_CONFIG": _COLD,
    "GET_COLD_DATA_FLOW_CTR_INFO": _COLD,
    "SET_COMMITLOG_READ_MODE": _COLD,
    "AUTH_CREATE_USER": _AUTH,
    "AUTH_UPDATE_USER": _AUTH,
    "AUTH_DELETE_USER": _AUTH,
    "AUTH_GET_USER": _AUTH,
    "AUTH_LIST_USER": _AUTH,
    "AUTH_CREATE_ACL": _AUTH,
    "AUTH_UPDATE_ACL": _AUTH,
    "AUTH_DELETE_ACL": _AUTH,
    "AUTH_GET_ACL": _AUTH,
    "AUTH_LIST_ACL": _AUTH,
    "QUERY_ASSIGNMENT": _POP,
    "SET_MESSAGE_REQUEST_MODE": _POP,
    "GET_ALL_MESSAGE_REQUEST_MODE": _POP,
    "POP_MESSAGE": _POP,
    "ACK_MESSAGE": _POP,
    "BATCH_ACK_MESSAGE": _POP,
    "PEEK_MESSAGE": _POP,
    "CHANGE_MESSAGE_INVISIBLETIME": _POP,
    "NOTIFICATION": _POP,
    "POLLING_INFO": _POP,
    "POP_ROLLBACK": _POP,
}

_HEAD: Final = """\
# Request codes

Every request code of Apache RocketMQ 5.3.3 (`RequestCode`), and `COMMON_BATCH_REQUEST` of its
unmerged [Batch-Protocol](batch-protocol.md). Written by
`python -m pocketmq.compatibility > docs/compatibility.md` from what the processors register; a test
keeps it so.

Where a server does not serve a code, it answers as the official ones do: 3
(`REQUEST_CODE_NOT_SUPPORTED`), with the remark ` request type CODE not supported`.

| code | name | served by | or why not |
|---|---|---|---|
"""


async def served() -> dict[int, list[str]]:
    """By request code the modules that serve it, at the name server and at the broker.

    For that a broker is started on a free port, in a directory that is gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="pocketmq-") as directory:
        config = BrokerConfig(
            broker_name="compatibility",
            listen_port=0,
            store_path_root_dir=directory,
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20_000,
        )
        modules: dict[int, list[str]] = {}
        async with Broker(config) as broker:
            for dispatcher in (NameServer().dispatcher, broker.dispatcher):
                for code, module in _modules(dispatcher):
                    modules.setdefault(code, []).append(module)
    return modules


def _modules(dispatcher: Dispatcher) -> Iterator[tuple[int, str]]:
    for code, route in dispatcher.codes.items():
        processor = getattr(route.handler, "__self__", route.handler)
        yield code, type(processor).__module__.replace(".", "/") + ".py"


def page(modules: Mapping[int, list[str]]) -> str:
    """The text of docs/compatibility.md."""
    rows = []
    for code in sorted(RequestCode):
        names = [f"[{module}](../{module})" for module in modules.get(code, ())]
        reason = "" if names else NOT_SERVED.get(code.name, "")
        rows.append(f"| {int(code)} | {code.name} | {', '.join(names)} | {reason} |\n")
    count = sum(code in modules for code in RequestCode)
    return f"{_HEAD}{''.join(rows)}\n{count} of {len(RequestCode)} are served.\n"


if __name__ == "__main__":
    print(page(asyncio.run(served())), end="")
