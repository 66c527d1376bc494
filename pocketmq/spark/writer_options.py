"""The options of a write: how to reach the brokers, and what to make of the rows.

They are checked on the driver before any task starts. Names ignore case. An option that does not
exist is an error, as it is for reads. Errors and reprs never show a secret.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import RemotingError
from pocketmq.client.name_server_list import NAMESRV_ADDR, check_namesrv
from pocketmq.client.namespace import Namespace
from pocketmq.client.options import ClientOptions
from pocketmq.client.validation import check_topic_name, producer_group
from pocketmq.message.limits import NO_SEND_TOPICS
from pocketmq.spark.options import OptionError, by_proper_name

__all__ = ["Tls", "WriterOptions"]

NAMES: Final = (
    "namesrv",
    "topic",
    "bodyFormat",
    "producerGroup",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "namespace",
    "queueSelector",
    "timeout",
    "retries",
    "batchMessages",
    "batchBytes",
    "batchesInFlight",
    "rowIds",
    "writeId",
)
PRODUCER_GROUP: Final = "pocketmq-spark"
#: Longer than a client's: a restart of a broker should not cost the attempt of a task.
TIMEOUT: Final = 60.0
LONGEST_TIMEOUT: Final = 86_400.0
BATCH_MESSAGES: Final = 1000
BATCH_BYTES: Final = 1024 * 1024
MOST_BATCH_BYTES: Final = 4 * 1024 * 1024
BATCHES_IN_FLIGHT: Final = 4
WRITE_ID: Final = re.compile(r"[\w.:-]{1,64}")

_SECRET: Final = re.compile("secret|token|password|access.?key", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypted connections: files in PEM format, at the same paths on every executor.

    Attributes:
        ca_file: certificates to trust; None trusts what the system trusts.
        cert_file: the client's own certificate, for servers that ask for one.
        key_file: its private key; None if `cert_file` has it.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files of this machine.

        Raises:
            OSError: a file cannot be read, or is not what it should be.
        """
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path is not None:
                open(path, "rb").close()  # whose error, unlike that of ssl, names the file
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """What a user asks of a write.

    Attributes:
        namesrv: the name servers, as for `Producer`.
        topic: of all messages; None if a column names it.
        json_body: whether the body is a JSON object of the remaining columns.
        group: the producer group.
        credentials, tls, namespace: as for every client; None if there are none.
        queue_selector: which queue a sharding key belongs to, as for `Producer`.
        timeout: of one batch with all its attempts, seconds.
        retries: further attempts for a batch, of those that reached a broker.
        batch_messages, batch_bytes: the most messages, and bytes of bodies, in a batch.
        batches_in_flight: the most batches of a task without an answer.
        row_ids: whether each message carries the id of its row.
        write_id: first part of the row ids of a batch write; None for a new one in each write.
    """

    namesrv: str
    topic: str | None
    json_body: bool
    group: str
    credentials: Credentials | None
    tls: Tls | None
    namespace: str
    queue_selector: str
    timeout: float
    retries: int
    batch_messages: int
    batch_bytes: int
    batches_in_flight: int
    row_ids: bool
    write_id: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> WriterOptions:
        """Read options as Spark gives them. Raises OptionError."""
        values = _Values(_known(options, streaming))
        return cls(
            namesrv=values.namesrv(),
            topic=values.topic(),
            json_body=values.choice("bodyFormat", ("column", "json")) == "json",
            group=values.group(),
            credentials=values.credentials(),
            tls=values.tls(),
            namespace=values.namespace(),
            queue_selector=values.choice("queueSelector", ("hash", "consistent")),
            timeout=values.seconds("timeout", TIMEOUT),
            retries=values.number("retries", 2, 0, 1000),
            batch_messages=values.number("batchMessages", BATCH_MESSAGES, 1, 10_000),
            batch_bytes=values.number("batchBytes", BATCH_BYTES, 1, MOST_BATCH_BYTES),
            batches_in_flight=values.number("batchesInFlight", BATCHES_IN_FLIGHT, 1, 1000),
            row_ids=values.flag("rowIds", True),
            write_id=values.write_id(streaming),
        )

    def client_options(self) -> ClientOptions:
        """Return the keyword arguments of a client. Loads the files of TLS; raises OSError."""
        return ClientOptions(
            credentials=self.credentials,
            tls=False if self.tls is None else self.tls.context(),
            namespace=self.namespace,
        )


def _known(options: Mapping[str, str], streaming: bool) -> dict[str, str]:
    """Return the options by their proper names."""
    ours = {}
    for name, value in options.items():
        lower = name.lower()
        if streaming and lower == "checkpointlocation":
            continue  # Spark's own
        if lower == "path":
            raise OptionError(
                "path",
                value,
                "messages are sent to brokers, not to a path: leave it out, and set the options "
                "namesrv and topic",
            )
        ours[name] = value
    return by_proper_name(ours, NAMES, _error, "option for writing")


def _error(name: str, value: str, wanted: str) -> OptionError:
    """The error for an option, without its value if that is, or may have been meant as, a
    secret."""
    return OptionError(name, "(hidden)" if _SECRET.search(name) else value, wanted)


class _Values:
    """Reads the values of options; absent ones are the default."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        """A text without blanks around it; None if absent."""
        if name not in self._given:
            return None
        text = self._given[name].strip()
        if not text:
            raise self._wrong(name, "need a text that is not empty, or leave the option out")
        return text

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of the words; the first is the default."""
        word = self._given.get(name, allowed[0]).strip().lower()
        if word not in allowed:
            raise self._wrong(name, f"need {' or '.join(allowed)}")
        return word

    def flag(self, name: str, default: bool) -> bool:
        text = self._given.get(name, str(default)).strip().lower()
        if text not in ("true", "false"):
            raise self._wrong(name, "need true or false")
        return text == "true"

    def number(self, name: str, default: int, low: int, high: int) -> int:
        text = self._given.get(name, str(default)).strip()
        if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
            raise self._wrong(name, f"need a whole number from {low} to {high}")
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        try:
            seconds = float(self._given.get(name, default))
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= LONGEST_TIMEOUT:
            raise self._wrong(name, f"need seconds above 0, and at most {LONGEST_TIMEOUT:.0f}")
        return seconds

    def namesrv(self) -> str:
        # Taken from the environment here, because executors have another one.
        name = "namesrv" if "namesrv" in self._given else NAMESRV_ADDR
        addresses = self._given.get("namesrv", os.environ.get(NAMESRV_ADDR, "")).strip()
        wanted = (
            "need the addresses of the name servers, such as host:9876 or a:9876;b:9876, in the "
            f"option namesrv or in the driver's environment variable {NAMESRV_ADDR}"
        )
        if not addresses:
            raise OptionError("namesrv", addresses, wanted)
        try:
            check_namesrv(addresses)
        except RemotingError as error:
            raise OptionError(name, addresses, f"{error}; {wanted}") from None
        return addresses

    def topic(self) -> str | None:
        topic = self.text("topic")
        if topic is not None:
            try:
                check_topic_name(topic)
            except RemotingError as error:
                raise self._wrong("topic", str(error)) from None
            if topic in NO_SEND_TOPICS:
                raise self._wrong("topic", "this topic is RocketMQ's own: name another one")
        return topic

    def group(self) -> str:
        group = self._given.get("producerGroup", PRODUCER_GROUP).strip()
        try:
            return producer_group(group)
        except RemotingError as error:
            raise self._wrong("producerGroup", str(error)) from None

    def namespace(self) -> str:
        name = self.text("namespace") or ""
        try:
            return Namespace(name).name
        except RemotingError as error:
            raise self._wrong("namespace", str(error)) from None

    def credentials(self) -> Credentials | None:
        access, secret = self.text("accessKey"), self.text("secretKey")
        token = self.text("securityToken")
        if access is not None and secret is not None:
            return Credentials(access, secret, token)
        for name in ("accessKey", "secretKey", "securityToken"):
            if name in self._given:
                raise self._wrong(name, "needs both accessKey and secretKey")
        return None

    def tls(self) -> Tls | None:
        files = {name: self.text(name) for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile")}
        given = [name for name, path in files.items() if path is not None]
        if not self.flag("tls", bool(given)):
            if given:
                raise self._wrong(given[0], "cannot go with tls=false")
            return None
        if files["tlsKeyFile"] is not None and files["tlsCertFile"] is None:
            raise self._wrong("tlsKeyFile", "needs tlsCertFile, the certificate of the key")
        return Tls(*files.values())

    def write_id(self, streaming: bool) -> str | None:
        text = self.text("writeId")
        if text is None:
            return None
        if streaming:
            raise self._wrong("writeId", "is for batch writes: streams have the id of their query")
        if not WRITE_ID.fullmatch(text):
            raise self._wrong("writeId", "need 1 to 64 letters, digits or any of _ . : -")
        return text

    def _wrong(self, name: str, wanted: str) -> OptionError:
        return _error(name, self._given.get(name, ""), wanted)
