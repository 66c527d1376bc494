"""Clusters of both makes and the official clients, each started once per session when first asked.

Whatever is missing on the machine (Java, Maven, Go) skips the tests that need it, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import official, ours, secured
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.controller_group import Group
from tests.interop.harness.controllers import Controllers
from tests.interop.harness.go_client import GoClient
from tests.interop.harness.mqadmin import Both, both_of
from tests.interop.harness.official import JavaPeer, Server, Unavailable

# A fixture that is also used here.
from tests.spark.conftest import spark as spark

pytest.register_assert_rewrite(
    *(f"{__package__}.harness.{who}_crowd" for who in ("java", "go", "our"))
)

_topics = itertools.count(1)

# Release 4 looks for its queues every 20 s, locks them every 20 s and lets a queue go 20 s late.
# Release 5 is not hurried: it must be told by the brokers in time.
HURRIED = (
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.lockInterval=500",
    "-Drocketmq.client.unlockDelayTimeMills=500",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.interop)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the logs of the servers it used."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Cluster):
                report.sections.append((f"{value.make} servers", value.log()))
            elif isinstance(value, Server):
                report.sections.append(("server", value.process.tail()))


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def jars() -> Path:
    try:
        return official.jars()
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def java_peers(jars: Path, directory: Path) -> Iterator[Callable[[str], JavaPeer]]:
    """`java_peers(release)`: the official Java client, started when first asked for."""
    started: dict[str, JavaPeer] = {}

    def peer(release: str) -> JavaPeer:
        if release not in started:
            try:
                flags = HURRIED if release == official.CLIENT_4 else ()
                started[release] = JavaPeer(directory, *flags, version=release)
            except Unavailable as missing:
                pytest.skip(str(missing))
        return started[release]

    yield peer
    for one in started.values():
        one.close()


@pytest.fixture
def java(request: pytest.FixtureRequest, java_peers: Callable[[str], JavaPeer]) -> JavaPeer:
    """The official Java client of the newest release, or of the one a test is parametrised with."""
    return java_peers(getattr(request, "param", official.VERSION))


@pytest.fixture(scope="session")
def admin(java_peers: Callable[[str], JavaPeer]) -> JavaPeer:
    """The Java client that has mqadmin, whichever release a test's `java` is."""
    return java_peers(official.VERSION)


@pytest.fixture(scope="session")
def go(directory: Path) -> GoClient:
    """The official Go client."""
    try:
        return GoClient(official.go_program(), directory)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def official_namesrv(jars: Path, directory: Path) -> Iterator[Server]:
    server = official.start_name_server(directory)
    yield server
    server.process.kill()


@pytest.fixture(scope="session")
def our_namesrv(directory: Path) -> Iterator[Server]:
    server = ours.start_name_server(directory)
    yield server
    assert server.process.running, server.process.tail()
    assert server.process.terminate() == 0, server.process.tail()


@pytest.fixture
def own_namesrv(tmp_path: Path) -> Iterator[Server]:
    """Our name server for one test, whose brokers are to be the only ones that clients find."""
    server = ours.start_name_server(tmp_path)
    yield server
    server.process.kill()


@pytest.fixture(scope="session")
def official_cluster(official_namesrv: Server, directory: Path) -> Iterator[Cluster]:
    broker = official.start_broker(directory, official_namesrv.address, name=BROKER_NAME)
    yield Cluster("official", official_namesrv, broker)
    broker.process.kill()


@pytest.fixture(scope="session")
def our_cluster(our_namesrv: Server, directory: Path) -> Iterator[Cluster]:
    broker = ours.start_broker(directory, our_namesrv.address, name=BROKER_NAME)
    yield Cluster("ours", our_namesrv, broker)
    assert broker.process.running, broker.process.tail()
    assert broker.process.terminate() == 0, broker.process.tail()


# Each has a name server of its own: brokers of one name server get the new topics of all clients.


@pytest.fixture(scope="session")
def official_secured(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The official servers with users, which only the broker knows."""
    home = tmp_path_factory.mktemp("official-secured")
    namesrv = official.start_name_server(home)
    broker = secured.start_broker("official", home, namesrv.address, name="secured")
    yield Cluster("official", namesrv, broker)
    for server in (broker, namesrv):
        server.process.kill()


@pytest.fixture(scope="session")
def half_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """As with official servers: a broker that knows users, and a name server that does not."""
    home = tmp_path_factory.mktemp("half-secured")
    namesrv = ours.start_name_server(home)
    broker = secured.start_broker("ours", home, namesrv.address, name="secured")
    yield Cluster("ours", namesrv, broker)
    for server in (broker, namesrv):
        assert server.process.terminate() == 0, server.process.tail()


@pytest.fixture(scope="session")
def all_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our broker and our name server, both with users."""
    home = tmp_path_factory.mktemp("secured")
    namesrv = secured.start_name_server(home)
    broker = secured.start_broker("ours", home, namesrv.address, name="secured")
    yield Cluster("ours", namesrv, broker)
    for server in (broker, namesrv):
        assert server.process.terminate() == 0, server.process.tail()


@pytest.fixture(params=["official", "ours"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each test runs against the official servers, which proves the test, and against ours."""
    value: Cluster = request.getfixturevalue(
        "our_cluster" if request.param == "ours" else "official_cluster"
    )
    return value


@pytest.fixture(scope="session")
def controllers(jars: Path, directory: Path) -> Iterator[Controllers]:
    """One official controller."""
    controllers = Controllers(directory)
    controllers.wait()
    yield controllers
    controllers.close()


@pytest.fixture
def group(directory: Path, controllers: Controllers, our_namesrv: Server) -> Iterator[Group]:
    """A group of brokers under that controller, without members."""
    group = Group(directory, controllers, our_namesrv)
    yield group
    group.close()


@pytest.fixture
def topic() -> str:
    """A topic name of this test alone."""
    return f"Interop_{next(_topics)}"


@pytest.fixture
def both(java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster) -> Both:
    """One mqadmin command on both clusters."""
    return both_of(java, official_cluster, our_cluster)


@pytest.fixture
def new_topic(both: Both, topic: str) -> str:
    """A topic made by updateTopic on both clusters: 3 queues to read, 2 to write."""
    for output in both("updateTopic", "-b", "BROKER", "-t", topic, "-r", "3", "-w", "2"):
        assert "success" in output
    return topic
