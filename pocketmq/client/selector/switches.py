"""The four switches of RIP-63, set locally and overridden by the name server's KV config.

The namespace `POCKETMQ_CLIENT_CONFIG` has a key per switch, with its official name. So
`mqadmin updateKvConfig -s POCKETMQ_CLIENT_CONFIG -k startDetectorEnable -v false` affects every
running producer at its next route poll; deleting the key restores the local value.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

log = logging.getLogger(__name__)

CLIENT_CONFIG_NAMESPACE = "POCKETMQ_CLIENT_CONFIG"
#: Bounds of the two times, ms: a mistake in the KV config must not make clients flood brokers.
TIMES_MS = (50, 600_000)


class Switches(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`send_latency_enable`: latencies and failures isolate brokers. `start_detector_enable`:
    brokers that do not answer count as unreachable and are probed. Times in milliseconds."""

    send_latency_enable: bool = True
    start_detector_enable: bool = True
    detect_interval: int = 2000
    detect_timeout: int = 200

    def overridden(self, table: Mapping[str, str]) -> Switches:
        """Return these switches, overridden by the valid values of a KV table.

        An unknown key is ignored; an invalid value is logged and ignored.
        """
        fields = {field.encode_name: field for field in msgspec.structs.fields(type(self))}
        changes: dict[str, bool | int] = {}
        for key, text in table.items():
            field = fields.get(key)
            if field is None:
                continue
            try:
                value = msgspec.convert(text.strip().lower(), field.type, strict=False)
                if field.type is int and not TIMES_MS[0] <= value <= TIMES_MS[1]:
                    raise ValueError(f"not within {TIMES_MS[0]}..{TIMES_MS[1]} ms")
            except ValueError as error:
                log.warning("%s: %s=%r is ignored: %s", CLIENT_CONFIG_NAMESPACE, key, text, error)
                continue
            changes[field.name] = value
        return msgspec.structs.replace(self, **changes)
