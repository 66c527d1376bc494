"""The route of a topic (GET_ROUTEINFO_BY_TOPIC)."""

from __future__ import annotations

import re

from msgspec import field

from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.headers.base import I32, I64


class QueueData(Body):
    """The queues of a topic at one broker group. perm: 4 read, 2 write, 1 inherit, 8 priority."""

    broker_name: str = ""
    perm: I32 = 0
    read_queue_nums: I32 = 0
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 0


class BrokerData(Body):
    """A broker group: address by broker id, where 0 is the master."""

    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicQueueMappingInfo(Body):
    """What a broker group, `bname`, has of a static topic: physical queue by logical one.

    epoch: the larger one counts where two groups claim the same queue.
    """

    bname: str = ""
    curr_id_map: dict[I32, I32] = field(default_factory=dict)
    dirty: bool = False
    epoch: I64 = 0
    scope: str = "__global__"
    topic: str = ""
    total_queues: I32 = 0


class TopicRouteData(Body):
    """Where a topic's queues are.

    order_topic_conf (`b0:4;b1:4`) fixes the queues of strictly ordered topics;
    topic_queue_mapping_by_broker is that of a static topic, by broker name.
    """

    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    def encode(self, standard_json: bool = False) -> bytes:
        """Compact text: the Go client splits broker_addrs by hand. `standard_json` also escapes
        what is not ASCII, as 5.x name servers do."""
        data = Body.encode(self, standard_json)
        if standard_json and not data.isascii():
            return _NOT_ASCII.sub(_escape, data.decode()).encode()
        return data


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
