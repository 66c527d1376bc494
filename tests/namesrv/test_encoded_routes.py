"""Routes that are kept in their encoded form are those of the tables, whatever changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.encoded_routes import EncodedRoutes
from pocketmq.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfig
from pocketmq.namesrv.processors.route import RouteProcessor
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.namesrv.text_file import TextFile
from pocketmq.remoting.bodies.route import QueueData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.namesrv import GetRouteInfoRequestHeader
from pocketmq.remoting.monotonic import MonotonicMs
from pocketmq.remoting.serving.request import Request
from tests.namesrv.registrations import body, header, registered, topic

TOPICS = ("A", "B", "C")
GROUPS = st.sampled_from(["b0", "b1"])
IDS = st.integers(0, 1)
ADDRESSES = st.sampled_from(["10.0.0.1:10911", "10.0.0.2:10911"])
NAMES = st.lists(st.sampled_from(TOPICS), min_size=2, unique=True)


class Changes(RuleBasedStateMachine):
    """Whatever changes routes, with a question for all of them after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.config = NamesrvConfig()
        self.routes = RouteTable(self.config, clock=lambda: MonotonicMs(self.now))
        self.directory = TemporaryDirectory()
        file = TextFile(Path(self.directory.name) / "kvConfig.json")
        self.kv_config = KVConfig(file)
        self.runner = asyncio.Runner()
        self.processor = RouteProcessor(
            self.config, self.routes, self.kv_config, clock=lambda: MonotonicMs(self.now)
        )

    def teardown(self) -> None:
        self.runner.run(self.kv_config.stop())
        self.runner.close()
        self.directory.cleanup()

    @rule(
        group=GROUPS, number=IDS, address=ADDRESSES, names=NAMES, version=st.integers(1, 3),
        perm=st.sampled_from([4, 6]), servers=st.sampled_from([[], ["10.0.0.9:1"]]),
        more=st.sampled_from([{}, {"enable_acting_master": True}, {"zone_name": "z"}]),
        cluster=st.sampled_from(["c0", "c1"]),
    )  # fmt: skip
    def register(
        self,
        group: str,
        number: int,
        address: str,
        names: list[str],
        version: int,
        perm: int,
        servers: list[str],
        more: dict[str, Any],
        cluster: str,
    ) -> None:
        data = body(
            *(topic(name, perm=perm) for name in names), version=version, filter_servers=servers
        )
        registered(
            self.routes, header(group, number, address, cluster_name=cluster, **more), data, address
        )

    @rule(group=GROUPS, address=ADDRESSES)
    def unregister(self, group: str, address: str) -> None:
        self.routes.unregister_broker("c0", address, group)

    @rule(address=ADDRESSES)
    def lose(self, address: str) -> None:
        self.routes.channel_lost(address)

    @rule(time=st.sampled_from([1, 70_000]))
    def expire(self, time: int) -> None:
        self.now += time
        self.routes.expire()

    @rule(name=st.sampled_from(TOPICS), group=GROUPS)
    def register_topic(self, name: str, group: str) -> None:
        row = QueueData(broker_name=group, perm=6, read_queue_nums=1, write_queue_nums=1)
        self.routes.register_topic(name, [row])

    @rule(name=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "c0"]))
    def delete_topic(self, name: str, cluster: str | None) -> None:
        self.routes.delete_topic(name, cluster)

    @rule(group=GROUPS, add=st.booleans())
    def change_permissions(self, group: str, add: bool) -> None:
        topics = self.routes.topics
        (topics.add_write_perm if add else topics.wipe_write_perm)(group)

    @rule(name=st.sampled_from(TOPICS), order=st.sampled_from(["", "b0:4"]), on=st.booleans())
    def order(self, name: str, order: str, on: bool) -> None:
        self.config.order_message_enable = on
        self.runner.run(self.kv_config.put(NAMESPACE_ORDER_TOPIC_CONFIG, name, order))

    @rule(on=st.booleans())
    def support_acting_masters(self, on: bool) -> None:
        self.config.support_acting_master = on

    @invariant()
    def answers_are_those_of_the_tables(self) -> None:
        for name in TOPICS:
            route = self.routes.route(name)
            for version, standard in (0, False), (500, True):
                request = Request(
                    code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    header=GetRouteInfoRequestHeader(topic=name),
                    version=version,
                )
                answer = self.processor.get_route_info(request)
                if route is None:
                    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
                    continue
                if self.config.order_message_enable:
                    order = self.kv_config.get(NAMESPACE_ORDER_TOPIC_CONFIG, name)
                    route.order_topic_conf = order
                assert answer.body == route.encode(standard_json=standard)


Changes.TestCase.settings = settings(stateful_step_count=30, deadline=None)
test_changes = Changes.TestCase


def test_what_is_kept_is_bounded() -> None:
    kept = EncodedRoutes(limit=100)
    for number in range(10):
        kept.keep(number, 1, b"x" * 30)
        assert kept.get(number, 1) == b"x" * 30
    assert [kept.get(number, 1) is not None for number in range(10)] == [False] * 9 + [True]
    assert kept.get(9, 2) is None
