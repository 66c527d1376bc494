"""The settings that can change while the broker runs, and where a change is saved.

A setting in `LIVE` is read whenever it is needed, so a new value takes effect at once. The other
settings of `BrokerConfig` are fixed when the broker starts, and a change is refused with the name
of the setting. (The official broker answers SUCCESS and continues unchanged or, for an address,
gives its clients a wrong one.) Official settings that this broker does not have are stored and
shown, with a warning; those in the file are shown from the start.

A change is saved in the file that the broker was started with, as by the official broker. If there
is none, or it cannot be written (a ConfigMap), the change is saved in the store, in
config/broker.properties. At the next start it takes precedence over the file and the command line,
so a broker that was drained stays drained.
Reference: remoting Configuration, broker AdminBrokerProcessor.updateBrokerConfig.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.broker.config import CHECKS, BrokerConfig
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.settings.official_config_keys import BROKER_KEYS
from pocketmq.remoting.settings.properties_file import (
    ConfigError,
    amend_properties,
    decode_properties,
    parse_properties,
    read_property,
)
from pocketmq.remoting.settings.reachable import may_write_in
from pocketmq.store.files import Files

log = logging.getLogger(__name__)

#: Property names of the settings that may change.
LIVE: Final = frozenset(
    (
        "allowRecallWhenBrokerNotWriteable",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "batchDeleteSubscriptionGroupMaxRate",
        "batchDeleteTopicMaxRate",
        "brokerHeartbeatInterval",
        "brokerPermission",
        "channelExpiredTimeout",
        "checkCRCOnRead",
        "cleanFileForciblyEnable",
        "cleanResourceInterval",
        "compressedRegister",
        "defaultMessageRequestMode",
        "defaultPopShareQueueNum",
        "defaultQueryMaxNum",
        "defaultTopicQueueNums",
        "deleteCommitLogFilesInterval",
        "deleteFileBatchMax",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
        "enableMixedMessageType",
        "enablePopBatchAck",
        "enablePopBufferMerge",
        "enablePopMessageThreshold",
        "enablePropertyFilter",
        "enableRetryTopicV2",
        "fileReservedTime",
        "filterDataCleanTimeSpan",
        "filterSupportRetry",
        "indexFileReadEnable",
        "initPopOffsetByCheckMsgInMem",
        "haMaxGapNotInSync",
        "litePullMessageEnable",
        "longPollingEnable",
        "maxAutoCreatedGroups",
        "maxAutoCreatedTopics",
        "maxLargeTransferBytes",
        "maxLargeTransferCount",
        "maxMessageFilterNumForNotification",
        "maxMessageSize",
        "maxPopPollingSize",
        "maxTransferBytesOnMessageInDisk",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk",
        "maxTransferCountOnMessageInMemory",
        "notifyConsumerIdsChangedEnable",
        "popCkMaxBufferSize",
        "popCkOffsetMaxQueueSize",
        "popCkStayBufferTime",
        "popCkStayBufferTimeOut",
        "popFromRetryProbability",
        "popFromRetryProbabilityForPriority",
        "popInflightMessageThreshold",
        "popLongPollingForceNotifyInterval",
        "popPollingSize",
        "popResponseReturnActualRetryTopic",
        "priorityOrderAsc",
        "offsetCheckInSlave",
        "recallMessageEnable",
        "registerBrokerTimeoutMills",
        "registerNameServerPeriod",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "retrieveMessageFromPopRetryTopicV1",
        "serverLoadBalancerEnable",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "slaveTimeout",
        "startAcceptSendRequestTimeStamp",
        "storeReplyMessageEnable",
        "timerCongestNumEachSlot",
        "timerMaxDelaySec",
        "transactionCheckInterval",
        "transactionCheckMax",
        "transactionOpBatchInterval",
        "transactionTimeOut",
        "useMessageFilterForNotification",
        "useSeparateRetryQueue",
        "useServerSideResetOffset",
        "validateSystemTopicWhenUpdateTopic",
    )
)
KEPT_FILE: Final = "broker.properties"
MAX_IDLE_VALUE: Final = 4096  # characters of a setting without effect
_NEVER_CHANGED: Final = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})


class LiveConfig:
    """The settings of one broker, and their changes.

    `on_change(keys)` is called with the property names whose values changed, and with
    brokerPermission whenever it is set, even to the same value; `clock` gives milliseconds.

    Attributes:
        config: the settings. A copy of a value does not change with it.
        path: the file in which changes are saved.
        idle: official settings that have no effect here, by property name: those in the file that
            the broker was started with, and those set since.
        data_version: increases with each change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        on_change: Callable[[frozenset[str]], None],
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        kept = config.root / "config" / KEPT_FILE
        file = Path(config.broker_config_path) if config.broker_config_path else None
        writable = file is not None and may_write_in(file.parent)
        self.path = file if file is not None and writable else kept
        self.data_version = DataVersion(timestamp=clock())
        self._on_change = on_change
        self._clock = clock
        self._fields = _fields()
        self.idle = {} if file is None else self._idle_in_file(file)
        if self.path is kept:
            self.idle |= self._idle_in_file(kept)
            self._take_kept()
        elif kept.exists():
            log.warning(
                "settings file %s is ignored, since the settings come from %s: move its changes "
                "there and remove it", kept, self.path,
            )  # fmt: skip

    def update(self, properties: Mapping[str, str]) -> list[str]:
        """Change these settings: all of them or, with RemotingError, none.

        Official settings that have no effect here are stored, because administrators' scripts set
        them. Return a warning for each of them.
        """
        refused = _NEVER_CHANGED.union(self.config.config_black_list.split(";"))
        if not refused.isdisjoint(properties):
            raise RemotingError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        faults = [
            fault
            for key, text in properties.items()
            if (fault := self._fault(key, text)) is not None
        ]
        if faults:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "; ".join(faults))
        try:
            values = {key: read_property(BrokerConfig, key, text)
                      for key, text in properties.items() if key in self._fields}  # fmt: skip
        except ConfigError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        changed = {key: value for key, value in values.items() if self._value(key) != value}
        for key, value in changed.items():
            log.info("setting %s: %s instead of %s", key, value, self._value(key))
            setattr(self.config, self._fields[key], value)
        idle = {key: text for key, text in properties.items() if key not in self._fields}
        self.idle |= idle
        warnings = [f"{key}: an official setting that has no effect here" for key in idle]
        for warning in warnings:
            log.warning("updateBrokerConfig: %s", warning)
        self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())
        # A name server may have removed the write permission (wipeWritePermOfBroker). Setting the
        # same permission again restores it.
        told = changed.keys() | (values.keys() & {"brokerPermission"})
        if told:
            self._on_change(frozenset(told))
        return warnings

    def _idle_in_file(self, path: Path) -> dict[str, str]:
        try:
            content = path.read_bytes()
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                log.warning(
                    "%s cannot be read, so getBrokerConfig leaves out its settings that have no "
                    "effect here: %s",
                    path,
                    error,
                )
            return {}
        properties = parse_properties(decode_properties(content)[0])
        return {
            key: text
            for key, text in properties.items()
            if key in BROKER_KEYS and key not in self._fields
        }

    def _take_kept(self) -> None:
        """Apply the changes that were saved in the store."""
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            log.warning("settings file %s cannot be read and is ignored: %s", self.path, error)
            return
        for key, text in parse_properties(decode_properties(content)[0]).items():
            try:
                fault = self._fault(key, text)
                value = (
                    None if fault or key in self.idle else read_property(BrokerConfig, key, text)
                )
            except ConfigError as error:
                fault = str(error)
            if fault:
                log.warning("setting %s in %s is ignored: %s", key, self.path, fault)
            elif key not in self.idle and value != self._value(key):
                log.warning(
                    "setting %s is %s, as set at run time, instead of %s; it is kept "
                    "in %s", key, value, self._value(key), self.path,
                )  # fmt: skip
                setattr(self.config, self._fields[key], value)

    def _value(self, key: str) -> Any:
        return getattr(self.config, self._fields[key])

    def _fault(self, key: str, text: str) -> str | None:
        """Return why a setting cannot be changed; None if it can."""
        if key in LIVE:
            return None
        if key in self._fields:
            return f"{key} cannot change while the broker runs: set it in broker.conf and restart"
        if key not in BROKER_KEYS:
            return f"{key} is not a property of a broker"
        if len(text) > MAX_IDLE_VALUE:
            return f"{key}: the value has {len(text)} characters, at most {MAX_IDLE_VALUE} fit"
        check = CHECKS.get(key)
        return check(text.strip()) if check is not None else None

    def keep(self, properties: Mapping[str, str]) -> None:
        """Write changed settings to `path`, and keep its other lines. Blocks; raises OSError."""
        path = self.path
        text, encoding = decode_properties(path.read_bytes() if path.exists() else b"")
        Files().replace(
            path,
            amend_properties(text, properties).encode(encoding),
            backup=path.with_name(path.name + ".bak"),
        )


@functools.cache
def _fields() -> dict[str, str]:
    """Return field names by property name. Reading the types takes 2 ms."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(BrokerConfig)}
