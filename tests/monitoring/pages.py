"""Reads the pages of a server over HTTP, from the event loop that serves it."""

from __future__ import annotations

import asyncio
import gzip
import urllib.error
import urllib.request
from typing import NamedTuple


class Page(NamedTuple):
    status: int
    content_type: str
    text: str


async def get(port: int | None, path: str, **headers: str) -> Page:
    assert port is not None
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)

    def read() -> Page:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                body = answer.read()
                if answer.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                return Page(answer.status, answer.headers["Content-Type"], body.decode())
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.code, error.headers["Content-Type"], error.read().decode())

    return await asyncio.to_thread(read)


class Series:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        read = list(text_string_to_metric_families(text))
        self.families = {family.name: family for family in read}
        # The official broker's samples may lack their family: then each is one of its own.
        self.samples = [sample for family in read for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels, among others."""
        return sum(value for _, value in self.of(name, **labels))

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """These samples: all labels, and the value."""
        return [
            (sample.labels, sample.value)
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


async def scrape(port: int | None) -> Series:
    page = await get(port, "/metrics")
    assert page.status == 200, page.text
    return Series(page.text)
