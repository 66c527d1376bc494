"""Both makes serve the same odd requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.codes import RequestCode
from scripts.write_compatibility_page import KEPT
from tests.interop.harness import official, ours
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.good_requests import GOOD
from tests.interop.harness.leniency import World, differences


@pytest.fixture
def worlds(jars: Path, tmp_path: Path) -> Iterator[tuple[World, World]]:
    """Servers for this test alone: some of the requests leave the official ones in a state in
    which they answer other tests differently."""
    with ExitStack() as ends:

        def world(make: str) -> World:
            starter = official if make == "official" else ours
            namesrv = starter.start_name_server(tmp_path)
            ends.callback(namesrv.process.kill)
            broker = starter.start_broker(tmp_path, namesrv.address, name=BROKER_NAME)
            ends.callback(broker.process.kill)
            made = World(Cluster(make, namesrv, broker))
            ends.callback(made.close)
            return made

        yield world("official"), world("ours")


@pytest.mark.timeout(900)
def test_both_makes_answer_odd_requests_alike(worlds: tuple[World, World]) -> None:
    unmeant = []
    unused = set(KEPT)
    for _, kept, text in differences(*worlds):
        if kept is None:
            unmeant.append(text)
        else:
            unused.discard(kept)
    assert not unmeant, "\n".join(unmeant)
    if official.VERSION < "5.4":  # some of them are gone since
        assert unused == set(), "these differences are gone: take them out of KEPT"


async def test_every_field_of_every_served_code_is_tried(tmp_path: Path) -> None:
    # 11 and 361: a field of our own, which official brokers ignore. 3001 to 3010: without users,
    # an official broker refuses them unread; tests/interop/test_acl.py has them. test_pop.py has
    # those of POP, in fewer forms. Brokers and controllers send the rest to each other only.
    # 5.3.3 has neither the pages of 21 and 201, nor 5001, nor the kinds of
    # index of 12.
    tried: dict[int, set[str]] = {
        11: {"largeTransfer"},
        12: {"indexType", "lastKey"},
        21: {"topicSeq", "dataVersion", "maxTopicNum"},
        201: {"groupSeq", "dataVersion", "maxGroupNum"},
        361: {"largeTransfer"},
        5001: {"E_T"},
    }
    users_and_acls = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
    pops = {
        *range(RequestCode.QUERY_ASSIGNMENT, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE + 1),
        *range(RequestCode.POP_MESSAGE, RequestCode.BATCH_ACK_MESSAGE + 1),
    }
    between_servers = {
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    }
    for good in GOOD:
        tried.setdefault(good.ask.code, set()).update(good.ask.fields)
    config = BrokerConfig(broker_name="b", listen_port=0, store_path_root_dir=str(tmp_path))
    missing = {}
    async with Broker(config) as broker:
        for dispatcher in (NameServer().dispatcher, broker.dispatcher):
            for code, route in dispatcher.codes.items():
                names = (
                    set() if route.header is None else set(route.header.__struct_encode_fields__)
                )
                if code in users_and_acls or code in pops or code in between_servers:
                    continue
                if code != RequestCode.COMMON_BATCH_REQUEST and names - tried.get(code, set()):
                    missing[code] = names - tried.get(code, set())
    assert missing == {}
