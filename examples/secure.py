"""Signed requests over TLS, in a namespace, with a trace of every message: what every client takes.

Needs servers with certificates and users: python secure.py CA.pem ACCESS_KEY SECRET_KEY"""

import asyncio
import ssl
import sys

from pocketmq import Credentials, Message, Producer
from pocketmq.types import ClientOptions


async def main(authority: str, access_key: str, secret_key: str) -> None:
    options: ClientOptions = {
        "credentials": Credentials(access_key, secret_key),
        "tls": ssl.create_default_context(cafile=authority),
        "namespace": "shop1",
    }
    async with Producer("shop", namesrv="127.0.0.1:9876", trace=True, **options) as producer:
        result = await producer.send(Message("orders", b"two coffees"))
        print(result.status.name, result.queue.topic)


asyncio.run(main(*sys.argv[1:]))
