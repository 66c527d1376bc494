"""Servers of both makes that know users, and users to be known by them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pocketmq.auth.service import signer_of
from pocketmq.auth.users import User
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection

from . import official, ours
from .official import Server

ROOT: Final = {"accessKey": "root", "secretKey": "root-password-1"}
INNER: Final = {"accessKey": "inner", "secretKey": "inner-password-1"}
SETTINGS: Final = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT["secretKey"]}),
    "innerClientAuthenticationCredentials": json.dumps(INNER),
}
#: The official servers check nothing without them; ours have no use for them.
PROVIDERS: Final = {
    f"{what}Provider": f"org.apache.rocketmq.auth.{what}.provider.Default{kind}Provider"
    for what, kind in (("authentication", "Authentication"), ("authorization", "Authorization"))
}


def _official(metadata: str) -> dict[str, object]:
    """The settings of an official server whose users come from a provider of this name."""
    found = {
        name.replace("Provider", "MetadataProvider"): metadata.format(
            package=provider.rpartition(".")[0], kind=name[0].upper() + name[1:-8]
        )
        for name, provider in PROVIDERS.items()
    }
    return {**SETTINGS, **PROVIDERS, **found}


OFFICIAL_SETTINGS: Final = _official("{package}.Local{kind}MetadataProvider")
#: Those of an official proxy, which looks at the users of its brokers.
PROXY_SETTINGS: Final = _official("org.apache.rocketmq.proxy.auth.Proxy{kind}MetadataProvider")

PATIENCE: Final = 20.0
"""Seconds. Some requests that are let through get no answer of the official broker."""


def start_name_server(directory: Path) -> Server:
    """Our name server, with users."""
    return ours.start_name_server(
        directory, settings=SETTINGS | {"authFilePath": directory / "users.json"}
    )


def start_broker(make: str, directory: Path, namesrv: str, *, name: str) -> Server:
    """A broker with users; `make` is "official" or "ours"."""
    if make == "official":
        return official.start_broker(directory, namesrv, name=name, settings=OFFICIAL_SETTINGS)
    return ours.start_broker(directory, namesrv, name=name, settings=SETTINGS)


def write_tools(home: Path) -> None:
    """Give the mqadmin of a peer with this home the credentials of a super user."""
    tools = home / "conf" / "tools.yml"
    tools.parent.mkdir()
    tools.write_text("".join(f"{key}: {value}\n" for key, value in ROOT.items()))


async def create_user(
    address: str, user: User, *resources: str, actions: Iterable[str] = ("All",)
) -> None:
    """Create a user anew, who may do these actions with `resources`."""
    await create_user_with(address, user, {resource: [*actions] for resource in resources})


async def create_user_with(address: str, user: User, grants: Mapping[str, list[str]]) -> None:
    """Create a user anew, who may do what is granted by resource."""
    connection = await Connection.open(
        address, sign=signer_of(User(ROOT["accessKey"], ROOT["secretKey"]))
    )

    async def request(code: int, body: object, **fields: str) -> None:
        answer = await connection.request(
            code, None, json.dumps(body).encode(), ext_fields=fields, timeout=PATIENCE
        )
        assert answer.code == 0, answer.remark

    name = user.username
    try:
        await request(RequestCode.AUTH_DELETE_USER, {}, username=name)
        account = {"username": name, "password": user.password}
        await request(RequestCode.AUTH_CREATE_USER, account, username=name)
        if grants:
            entries = [
                {"resource": resource, "actions": actions, "decision": "Allow"}
                for resource, actions in grants.items()
            ]
            access = {"policies": [{"policyType": "Custom", "entries": entries}]}
            await request(RequestCode.AUTH_CREATE_ACL, access, subject=f"User:{name}")
    finally:
        await connection.close()
