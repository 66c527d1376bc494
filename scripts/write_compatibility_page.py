"""Write docs/compatibility.md: what is served of Apache RocketMQ 5.5.0.

    python scripts/write_compatibility_page.py

The page lists request codes from what the processors register, settings from the configuration
classes, and topic attributes and kinds. tests/test_compatibility.py fails when the page is out of
date, or when a code is neither served nor explained in `NOT_SERVED`.
"""

from __future__ import annotations

import asyncio
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.settings.official_config_keys import (
    AUTH_CONFIG,
    BROKER_KEYS,
    NAMESRV_KEYS,
    REFUSED_BY_BROKER,
    REFUSED_BY_NAMESRV,
)

PAGE: Final = Path(__file__).parents[1] / "docs" / "compatibility.md"

_NOBODY: Final = "not served by release 5.3.3 either"
_TO_CLIENTS: Final = "a broker sends it to a client"
_ACTING_MASTER: Final = "for slaves that act as masters; pocketmq's do not"
_CONTROLLER: Final = "served by the controller, which pocketmq does not have"
_COLD: Final = "throttles reads of cold data; pocketmq relies on the page cache"
_ROCKSDB: Final = "for stores in RocksDB, which pocketmq does not have"

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
    "NOTIFY_MIN_BROKER_ID_CHANGE": _ACTING_MASTER,
    "RESET_MASTER_FLUSH_OFFSET": _ACTING_MASTER,
    "ADD_BROKER": "for broker containers, which pocketmq does not have",
    "REMOVE_BROKER": "for broker containers, which pocketmq does not have",
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
    "POP_ROLLBACK": "moves popped messages out of RocksDB, which pocketmq does not have",
    "CHECK_ROCKSDB_CQ_WRITE_PROGRESS": _ROCKSDB,
    "EXPORT_ROCKSDB_CONFIG_TO_JSON": _ROCKSDB,
    "UPDATE_AND_CREATE_STATIC_TOPIC": "for static topics, which pocketmq does not have",
    "UPDATE_COLD_DATA_FLOW_CTR_CONFIG": _COLD,
    "REMOVE_COLD_DATA_FLOW_CTR_CONFIG": _COLD,
    "GET_COLD_DATA_FLOW_CTR_INFO": _COLD,
    "SET_COMMITLOG_READ_MODE": _COLD,
}


class Kept(NamedTuple):
    """Odd requests that the official servers answer in another way, and why that is intended.

    `requests` are names of the cases of tests/interop/test_leniency.py, in which `*` stands for
    anything; `official` and `ours` are the response codes.
    """

    requests: tuple[str, ...]
    official: int | str
    ours: int | str
    why: str


#: Differences that stay. The interop test fails on any other, and on one that no longer exists.
KEPT: Final[tuple[Kept, ...]] = (
    Kept(
        ("* body an unknown key only", "34 body {}", "41 body {}"),
        0,
        1,
        "a body without a known key is refused, so that its sender notices",
    ),
    Kept(
        ("* body []", "* body null", "217 body absent"),
        0,
        1,
        "a body without an object would do nothing",
    ),
    Kept(
        ("34 body *DataSet null", "41 body mqSet null", "42 body mqSet null"),
        1,
        0,
        "Go clients write null for an empty list; the official broker fails halfway",
    ),
    Kept(
        ('34 body "N.0"', '103 body "N.0"', '200 body "N.0"', '322 body "N.0"'),
        1,
        0,
        'fastjson reads the text "1.0" as an int, but not as a long; here it is 1 for both',
    ),
    Kept(
        ('46 body "N.0"',),
        1,
        23,
        'here the text "1.0" is 1, so the expression is checked and refused',
    ),
    Kept(
        ("18 body Set[]", "217 body Set[]", "225 body Set[]"),
        1,
        0,
        "fastjson takes `Set[...]` only where Java has a set; here it is a list like any other",
    ),
    Kept(
        ("11 consumerGroup=''", "361 consumerGroup=''", "36 group=''", "352 group=''"),
        0,
        26,
        "the official broker creates a group without a name",
    ),
    Kept(
        ("11 expressionType='abc'", "361 expressionType='abc'"),
        0,
        23,
        "the official broker treats an unknown filter as none",
    ),
    Kept(
        ("15 queueId='-1'", "15 commitOffset='-1'"),
        0,
        29,
        "the official broker stores a negative offset",
    ),
    Kept(
        ("17 readQueueNums='-1'", "17 writeQueueNums='-1'"),
        0,
        29,
        "a topic cannot have a negative number of queues",
    ),
    Kept(
        ("34 body without clientID", "34 body clientID null"),
        1,
        1,
        "the official broker registers a client without an id before it fails",
    ),
    Kept(
        ("35 without clientID",),
        1,
        0,
        "a client is known by its connection, so it can unregister without its id",
    ),
    Kept(
        ("100 without value",),
        0,
        1,
        "the official name server stores an unreadable entry",
    ),
    Kept(
        ("103 without brokerName", "103 without brokerAddr", "103 without clusterName"),
        0,
        1,
        "no client could reach such a broker",
    ),
    Kept(
        ("41 body unknown keys within", "42 body unknown keys within"),
        0,
        1,
        "a message queue needs a topic and a broker; the official broker locks a queue named null",
    ),
    Kept(("103 body filterServerList abc",), 0, 1, "a text stands where a list belongs"),
    Kept(
        (
            "200 body {}",
            "200 body without groupName",
            "200 body groupName null",
            "225 body unknown keys within",
        ),
        1,
        29,
        "both refuse it; the official broker fails with a NullPointerException",
    ),
    Kept(
        ("200 body groupRetryPolicy null",),
        0,
        0,
        "a group without a retry policy gets the default one, as if the field were missing",
    ),
    Kept(("217 without topic",), 0, 1, "the official name server registers a topic named null"),
    Kept(("217 body unknown keys within",), 0, 1, "the queues of a topic need a broker"),
    Kept(
        ("314 without destGroup",),
        0,
        1,
        "the official broker stores the offsets for a group named null",
    ),
    Kept(
        ("322 brokerAddr=*",),
        0,
        0,
        "an earlier request 104 named this address with another broker: here it removes nothing",
    ),
    Kept(
        ("323 good", "323 without topic", "323 topic=*"),
        0,
        1,
        "the message is not a half message; the official broker makes it one",
    ),
    Kept(
        ("324 without topic", "325 without b"),
        29,
        1,
        "both refuse it; here the text names the missing field",
    ),
)

#: What is served of later releases: what, and how.
_LATER: Final = (
    (
        "master and slave of either make",
        "both ways with 5.5.0. Topics and groups are asked for and answered in pages "
        "(`enableSplitMetadata`, `splitMetadataSize`)",
    ),
    (
        "a store that goes back and forth",
        "with file queues. Either broker fills the queues after a crash of the other. What lies "
        "in RocksDB is refused by name ([servers.md](servers.md#the-store))",
    ),
    (
        "requests in odd JSON",
        "as by 5.3.3 ([Odd requests](#odd-requests)). From 5.4 on, official servers ignore keys in "
        "another spelling, refuse bare keys, and read a number that is null or empty as 0",
    ),
    (
        "properties of a batch as a whole",
        "added to each of its messages, as by 5.3.3, so the messages of a Java client's batch have "
        "one id. From 5.4 on, official brokers do not add them",
    ),
    (
        "recalls of timed messages",
        "read in both forms. `appendTopicForTimerDeleteKey=false`, the default from 5.4 on, "
        "writes those that these releases read; the default here is `true`, as up to 5.3.3: set "
        "it to false while a store also belongs to a newer broker",
    ),
    (
        "attributes of groups",
        "`priority.factor` is used; `lite.*` are checked and kept, without an effect",
    ),
    (
        "`suspend` of CHANGE_MESSAGE_INVISIBLETIME and ChangeInvisibleDuration",
        "the next delivery counts no attempt",
    ),
    (
        "`ORIGIN_GROUP`, `_SYS_MSG_PRIORITY_`, `__LITE_TOPIC`",
        "no user properties for gRPC clients; consumers of remoting clients see them",
    ),
    (
        "priority messages",
        "as at 5.5.0, also `useSeparateRetryQueue` ([pop.md](pop.md#priority)). A pop that is not "
        "by priority reads the queues upwards, as at 5.3.3, not downwards",
    ),
    ("lite topics", "not served: the property has no effect"),
    (
        "deletion of the topics (5002) or groups (5003) of a list",
        "of at most 1,000, at `batchDeleteTopicMaxRate` and `batchDeleteSubscriptionGroupMaxRate` "
        "a second; ACL: Delete on each",
    ),
    (
        "`mqadmin switchTimerEngine` (5001)",
        "accepts the timer in files, which is the only one here",
    ),
    (
        "messages by tag (`indexType=T`, `mqadmin queryMsgByKey -p T`)",
        "found if they were stored by this broker or a newer one; the index files are those of 5.5",
    ),
    (
        "names of groups and topics",
        "a group that is created has at most 120 characters; retry and dead-letter topics have "
        "255. Existing groups keep longer names",
    ),
    (
        "filters of NOTIFICATION",
        "as at 5.5.0 (`useMessageFilterForNotification`, `maxMessageFilterNumForNotification`)",
    ),
    (
        "`liteTopic` in requests, codes 200070 to 200079",
        "not served",
    ),
    (
        "anything in RocksDB",
        "not served",
    ),
)

_LATER_HEAD: Final = """\
## Releases

Servers and clients report release 5.5.0. Peers from 4.9 on treat it like 5.3.3. The tests run
against the official servers, clients and tools of 5.3.3 and 5.5.0, and the Java client 4.9.8.
Of 5.4 and 5.5, this is served, or kept for those that know it:

| | |
|---|---|
"""

_KEPT_HEAD: Final = """
## Odd requests

Clients in many languages rely on the leniency of the official servers, which up to 5.3.3 match the
keys of a JSON body without regard to case, `_` and `-`, and accept single quotes, bare keys, extra
commas and comments. Most fields of a header may be missing or hold nonsense. pocketmq accepts what
they accept, with the same effect, and these limits:

| body | limit |
|---|---|
| not standard JSON | 64 KiB |
| keys in another spelling, unknown keys, nulls | 4 MiB |
| exact spelling | none |

The official broker limits a batch of messages by its bytes only, pocketmq also by their
[number](servers.md#limits). With the unique ids that official producers add, fewer messages fit
into the 4 MiB of a batch.

Where the official server fails with an exception, pocketmq refuses the request with a text that
names the field. `tests/interop/test_leniency.py` sends about 1,600 odd requests to both. The
answers are the same, except for these. Each begins with its request code; `*` stands for any text.

| request | official | pocketmq | why |
|---|---|---|---|
"""

_HEAD: Final = """\
# Compatibility

What pocketmq's servers support of Apache RocketMQ 5.5.0, and of earlier releases: topics, request
codes and settings. `python scripts/write_compatibility_page.py` writes this page from the code.

## Topic kinds

| topic | |
|---|---|
| ordinary, delayed, timed, FIFO and transactional messages | served |
| `queue.type=BatchCQ` (batch consume queues) | not served |
| `cleanup.policy=COMPACTION` | not served |
| static topics (`config/topicQueueMapping.json`) | not served |
| light queues (`%LMQ%...`) | with [two settings](servers.md#light-queues); not by POP or gRPC |
| lite topics (RIP-83) | not served |

The broker opens an official store with topics that are not served, and leaves their files
unchanged, so the official broker can open the store again. It refuses requests about their messages
and offsets, and their deletion, with code 29 and the reason. Delayed, timed and half messages to
such topics stay in the store. After a crash of the official broker, only its own recovery can
complete batch consume queues, so this broker leaves the file `abort` in the store.

## Topic attributes

| attribute | |
|---|---|
| `message.type` | any value of 5.3.3, and `PRIORITY`; `LITE` is kept, without an effect |
| `lite.topic.expiration` | kept, without an effect |
| `queue.type` | `SimpleCQ` |
| `cleanup.policy` | `DELETE` |
| `reserve.time` | refused, as by the official broker |

## Security

[tls.md](tls.md) and [security.md](security.md) (signatures, users and access lists of ACL 2.0) list
the differences.

"""

_CODES_HEAD: Final = """\
## Request codes

Every request code of Apache RocketMQ 5.3.3 (`RequestCode`), 5001 of 5.4.0, 5002 and 5003 of 5.5.1,
and `COMMON_BATCH_REQUEST` of its unmerged [Batch-Protocol](batch-protocol.md).

A server answers other codes as the official ones do: 3 (`REQUEST_CODE_NOT_SUPPORTED`), with the
remark ` request type CODE not supported`.

| code | name | served by | why not |
|---|---|---|---|
"""

_SETTINGS_HEAD: Final = """\
## Settings

Official configuration files load as they are. A setting without effect causes a warning;
[servers.md](servers.md#settings) says how it is shown and changed. Values that would protect
messages or access, or change the format of the store, are refused with an error that says what to
do instead.
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
        processor = getattr(route.registered, "__self__", route.registered)
        yield code, type(processor).__module__.replace(".", "/") + ".py"


def page(modules: Mapping[int, list[str]]) -> str:
    """The text of docs/compatibility.md."""
    rows = []
    for code in sorted(RequestCode):
        names = [f"[{module}](../{module})" for module in modules.get(code, ())]
        reason = "" if names else NOT_SERVED.get(code.name, "")
        rows.append(f"| {int(code)} | {code.name} | {', '.join(names)} | {reason} |\n")
    count = sum(code in modules for code in RequestCode)
    codes = f"{_CODES_HEAD}{''.join(rows)}\n{count} of {len(RequestCode)} are served.\n"
    later = "".join(f"| {what} | {how} |\n" for what, how in _LATER)
    return f"{_HEAD}{_LATER_HEAD}{later}\n{codes}{odd_requests()}\n{_settings()}"


def _settings() -> str:
    parts = [_SETTINGS_HEAD]
    for server, config, official, refusing in (
        ("broker", BrokerConfig, BROKER_KEYS, REFUSED_BY_BROKER.keys()),
        ("name server", NamesrvConfig, NAMESRV_KEYS | AUTH_CONFIG, REFUSED_BY_NAMESRV.keys()),
    ):
        names = {field.encode_name for field in msgspec.structs.fields(config)}
        idle = sorted(official - names - refusing, key=str.lower)
        refused = sorted(refusing - names, key=str.lower)
        own = sorted(names - official, key=str.lower)
        parts.append(f"\n### Of the {server}\n\n")
        parts.append(f"{len(official & names)} official settings have an effect. ")
        parts.append(f"These {len(idle)} have none:\n\n{_wrapped(idle)}\n")
        parts.append(f"\nValues of these are refused:\n\n{_wrapped(refused)}\n")
        if own:
            parts.append(f"\nThese are not official:\n\n{_wrapped(own)}\n")
    return "".join(parts)


def _wrapped(names: Sequence[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def odd_requests() -> str:
    """The part about the differences of `KEPT`."""
    rows = []
    for kept in KEPT:
        requests = "<br>".join(f"`{name}`" for name in kept.requests)
        rows.append(f"| {requests} | {kept.official} | {kept.ours} | {kept.why} |\n")
    return _KEPT_HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(asyncio.run(served())), encoding="utf-8")
