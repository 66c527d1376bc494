"""RocketMQ 5's own clients with right, wrong and no credentials, at each kind of proxy.

Each cell is one client as one user, which sends, receives with a simple consumer, and receives with
a push consumer. CI runs a sample, `--long` all of them, also at the official proxy.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.credentials import Credentials
from tests.cli.running import Running

from .harness import official, proxy
from .harness.official import Unavailable
from .harness.secured import OFFICIAL_SETTINGS, PROXY_SETTINGS, ROOT, SETTINGS, create_user
from .test_credentials import USERS
from .test_grpc_clients import Endpoint

DONE = {"signed-send": "sent", "signed-receive": "received", "signed-push": "pushed"}
CLIENTS = ("java", "go", "python")
#: Client, and user.
Cell: TypeAlias = tuple[str, str]
REMARKS = {
    "no topic": "User:groups has no permission to access Topic:",
    "wrong": "check signature failed.",
    "unknown": "User:mallory is not found.",
    "missing": "username cannot be null.",
}


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """`pocketmq serve`."""
    arguments: list[str | Path] = ["serve", "--store", tmp_path_factory.mktemp("serve")]
    for option in ("--grpc-port", "--namesrv-port", "--listen-port"):
        arguments += [option, "0"]
    with Running(*arguments, *given(SETTINGS)) as running:
        found = running.wait_for(r"name server listening on (\S+), .* gRPC on port (\d+)")
        prepare(found[1], found[1])
        yield Endpoint(f"127.0.0.1:{found[2]}", found[1])


@pytest.fixture(scope="module")
def over_ours(serve: Endpoint) -> Iterator[Endpoint]:
    """`pocketmq proxy` over our broker."""
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("init")}
    with Running("proxy", "-n", serve.namesrv, "--grpc-port", "0", *given(settings)) as running:
        yield Endpoint(running.wait_for(r"proxy listening on (\S+),")[1], serve.namesrv)


@pytest.fixture(scope="module")
def official_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The official proxy."""
    directory = tmp_path_factory.mktemp("official-proxy")
    with ExitStack() as stack:
        try:
            server = official.start_name_server(directory)
            stack.callback(server.process.kill)
            started = proxy.start_local_proxy(
                directory,
                server.address,
                settings=OFFICIAL_SETTINGS,
                own_settings=PROXY_SETTINGS,
            )
            stack.callback(started.process.kill)
        except Unavailable as missing:
            pytest.skip(str(missing))
        prepare(started.address, server.address)
        yield Endpoint(f"127.0.0.1:{started.broker_name}", server.address)


def given(settings: dict[str, object]) -> list[str]:
    """Settings as options."""
    text = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in settings.items()
    }
    return [word for name, value in text.items() for word in ("--set", f"{name}={value}")]


def prepare(server: str, namesrv: str) -> None:
    """Create the topics, and the users by one server that has them."""

    async def create() -> None:
        rights = {"right": ("Topic", "Group"), "no topic": ("Group",), "no group": ("Topic",)}
        for name, kinds in rights.items():
            user = USERS[name]
            assert user is not None
            await create_user(
                server, user, *(f"{kind}:*" for kind in kinds), actions=("Pub", "Sub")
            )
        root = Credentials(ROOT["accessKey"], ROOT["secretKey"])
        async with Admin(namesrv=namesrv, credentials=root) as admin:
            for client, role in itertools.product(CLIENTS, DONE):
                await admin.create_topic(f"{client}-{role}", queues=1)

    asyncio.run(create())


def play(endpoint: Endpoint, directory: Path, cells: list[Cell]) -> dict[Cell, dict[str, str]]:
    """Return what becomes of each role."""

    def one(cell: Cell) -> dict[str, str]:
        client, who = cell
        home = directory / f"{client}-{who}"
        home.mkdir()
        process = proxy.scenario_process(
            client, home, endpoint.address, f"{client}-", *DONE, user=USERS[who]
        )
        return {role: " ".join(facts) for role, facts in proxy.facts_of(process).items()}

    try:
        for client in {client for client, _ in cells}:
            proxy.CLIENTS[client]()  # compiled once, before there are threads
    except Unavailable as missing:
        pytest.skip(str(missing))
    with ThreadPoolExecutor(6) as pool:
        return dict(zip(cells, pool.map(one, cells), strict=True))


def check(outcomes: dict[Cell, dict[str, str]]) -> None:
    """Each role is refused just where the user lacks something, and the client says it."""
    for (client, who), facts in outcomes.items():
        for role, done in DONE.items():
            allowed = who == "right" or (who, role) == ("no group", "signed-send")
            assert (facts[role] == done) == allowed, (client, who, facts)
            if not allowed and client != "python" and who in REMARKS:
                # The client for Python keeps it to its log.
                assert REMARKS[who] in facts[role], (client, who, facts)


def test_some_of_them(serve: Endpoint, tmp_path: Path) -> None:
    check(play(serve, tmp_path, [("go", "right"), ("go", "wrong"), ("java", "missing")]))


@pytest.mark.long
@pytest.mark.parametrize("place", ["serve", "over_ours", "official_proxy"])
def test_each_client_as_everybody(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    endpoint: Endpoint = request.getfixturevalue(place)
    check(play(endpoint, tmp_path, list(itertools.product(CLIENTS, USERS))))
