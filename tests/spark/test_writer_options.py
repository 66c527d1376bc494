from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pocketmq.spark.options.connection_options import Tls
from pocketmq.spark.options.option_error import OptionError
from pocketmq.spark.options.writer_options import NAMES, WriterOptions


def parse(**options: str) -> WriterOptions:
    return WriterOptions.parse({"namesrv": "a:9876", **options}, streaming=False)


def parse_stream(**options: str) -> WriterOptions:
    return WriterOptions.parse({"namesrv": "a:9876", **options}, streaming=True)


def test_defaults() -> None:
    options = parse()
    assert options.connection.namesrv == "a:9876"
    assert (options.topic, options.json_body) == (None, False)
    assert options.group == "pocketmq-spark"
    connection = options.connection
    assert (connection.credentials, connection.tls, options.namespace) == (None, None, "")
    assert options.queue_selector == "hash"
    assert (options.timeout, options.retries) == (60.0, 2)
    assert (options.batch_messages, options.batch_bytes) == (1000, 1024 * 1024)
    assert options.batches_in_flight == 4
    assert (options.row_ids, options.write_id) == (True, None)


def test_every_option_and_names_in_any_case() -> None:
    options = WriterOptions.parse(
        {
            "NAMESRV": " a:1;b:2 ",
            "topic": "T",
            "bodyformat": "JSON",
            "producerGroup": "g",
            "accesskey": "ak",
            "secretKey": "sk",
            "securityToken": "st",
            "tls": "true",
            "tlsCaFile": "/ca.pem",
            "tlsCertFile": "/cert.pem",
            "tlsKeyFile": "/key.pem",
            "namespace": "ns",
            "queueSelector": "consistent",
            "timeout": "2.5",
            "retries": "0",
            "batchMessages": "10",
            "batchBytes": "100",
            "batchesInFlight": "1",
            "rowIds": "false",
            "writeId": "2026-11-23:1",
        },
        streaming=False,
    )
    assert options.connection.namesrv == "a:1;b:2"
    assert (options.topic, options.json_body, options.group) == ("T", True, "g")
    assert options.connection.credentials is not None
    assert options.connection.credentials.secret_key == "sk"
    assert options.connection.credentials.security_token == "st"
    assert options.connection.tls == Tls("/ca.pem", "/cert.pem", "/key.pem")
    assert (options.namespace, options.queue_selector) == ("ns", "consistent")
    assert (options.timeout, options.retries) == (2.5, 0)
    assert (options.batch_messages, options.batch_bytes) == (10, 100)
    assert (options.batches_in_flight, options.row_ids) == (1, False)
    assert options.write_id == "2026-11-23:1"
    assert pickle.loads(pickle.dumps(options)) == options  # as tasks get it
    assert "sk" not in repr(options)
    assert "st" not in repr(options.connection.credentials)


def test_the_environment_of_the_driver_names_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "c:9876")
    assert WriterOptions.parse({}, streaming=False).connection.namesrv == "c:9876"
    assert parse().connection.namesrv == "a:9876"
    monkeypatch.setenv("NAMESRV_ADDR", "c")
    with pytest.raises(OptionError, match="option NAMESRV_ADDR = 'c'"):
        WriterOptions.parse({}, streaming=False)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(OptionError, match=r"option namesrv = '': need .*environment variable"):
        WriterOptions.parse({}, streaming=False)


def test_a_stream_has_a_checkpoint() -> None:
    parse_stream(checkpointLocation="/cp")
    with pytest.raises(OptionError, match="no such option"):
        parse(checkpointLocation="/cp")


def test_a_stream_may_have_a_name() -> None:
    """Spark adds it to the options of the writer."""
    assert parse_stream(queryname="orders") == parse_stream()
    with pytest.raises(OptionError, match="no such option"):
        parse(queryName="orders")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namesrv": "nowhere"}, "option namesrv = 'nowhere': .*such as host:9876"),
        ({"namesrv": " "}, "option namesrv"),
        ({"topics": "T"}, "option topics = 'T': there is no such option for writing; did you mean"),
        ({"kafka.bootstrap.servers": "x"}, "known: namesrv, topic"),
        ({"path": "/x"}, "option path = '/x': messages are sent to brokers, not to a path"),
        ({"topic": "a b"}, "option topic = 'a b': .*characters outside"),
        ({"topic": ""}, "option topic = '': need a text that is not empty"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "RocketMQ's own"),
        ({"bodyFormat": "avro"}, "option bodyFormat = 'avro': need column or json"),
        ({"producerGroup": "DEFAULT_PRODUCER"}, "option producerGroup = .*choose a name"),
        ({"accessKey": "ak"}, "option accessKey = .*needs both accessKey and secretKey"),
        ({"securityToken": "t"}, "needs both accessKey and secretKey"),
        ({"tls": "yes"}, "option tls = 'yes': need true or false"),
        (
            {"tls": "false", "tlsCaFile": "/ca"},
            "option tlsCaFile = '/ca': cannot go with tls=false",
        ),
        ({"tlsKeyFile": "/key"}, "option tlsKeyFile = '/key': needs tlsCertFile"),
        ({"namespace": "a%b"}, "option namespace = 'a%b'"),
        ({"queueSelector": "random"}, "need hash or consistent"),
        ({"timeout": "0"}, "option timeout = '0': need seconds above 0"),
        ({"timeout": "nan"}, "need seconds above 0"),
        ({"timeout": "10s"}, "need seconds above 0"),
        ({"retries": "-1"}, "option retries = '-1': need a whole number from 0 to 1000"),
        ({"batchMessages": "0"}, "need a whole number from 1 to 10000"),
        ({"batchBytes": "4194305"}, "need a whole number from 1 to 4194304"),
        ({"batchesInFlight": "many"}, "need a whole number from 1 to 1000"),
        ({"rowIds": "1"}, "option rowIds = '1': need true or false"),
        ({"writeId": "a/b"}, "option writeId = 'a/b': need 1 to 64 letters"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**options)


def test_a_stream_has_no_write_id() -> None:
    with pytest.raises(OptionError, match="streams have the id of their query"):
        parse_stream(writeId="x")


@pytest.mark.parametrize(
    "name", ["secretKey", "accessKey", "securityToken", "secret_key", "Passwords"]
)
def test_no_error_shows_a_secret(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**{name: "hunter2"})
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in caught.value.value


def test_a_missing_file_of_tls_is_named(tmp_path: Path) -> None:
    options = parse(tlsCaFile=str(tmp_path / "ca.pem"))
    with pytest.raises(OSError, match=r"ca\.pem"):
        options.client_options()


def test_docs_have_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    writing = text.partition("\n## Writing")[2].partition("\n## ")[0]
    firsts = re.findall(r"^\| (`.*?) \|", writing, re.MULTILINE)
    assert {*NAMES} <= {*re.findall(r"`(\w+)`", " ".join(firsts))}
