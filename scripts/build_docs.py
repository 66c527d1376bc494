"""Build the API reference from the docstrings: python scripts/build_docs.py [DIRECTORY].

The directory is build/docs unless given. Needs the extra `docs`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pdoc
import pdoc.render

import pocketmq

#: What an application meets beside the names of `pocketmq` itself.
MODULES = (
    "pocketmq",
    "pocketmq.embedded",
    "pocketmq.sync",
    "pocketmq.sync_client",
    "pocketmq.sync_push",
    "pocketmq.testing",
    "pocketmq.testing.clock",
    "pocketmq.testing.faults",
    "pocketmq.testing.server",
    "pocketmq.client.admin.admin",
    "pocketmq.client.admin.configs",
    "pocketmq.client.admin.groups",
    "pocketmq.client.admin.offsets",
    "pocketmq.client.admin.servers",
    "pocketmq.client.admin.topics",
    "pocketmq.client.consumer.consume_hooks",
    "pocketmq.client.consumer.router",
    "pocketmq.client.credentials",
    "pocketmq.client.errors",
    "pocketmq.client.options",
    "pocketmq.client.producer.hooks",
    "pocketmq.client.producer.queue_choice",
    "pocketmq.client.selector",
    "pocketmq.message.message",
    "pocketmq.remoting.bodies",
    "pocketmq.remoting.codes",
    "pocketmq.store.datasource",
)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    # Public names are loaded on use; the generator looks at what is there.
    for name in dir(pocketmq):
        getattr(pocketmq, name)
    pdoc.render.configure(
        docformat="markdown",
        footer_text=f"pocketmq {pocketmq.__version__}",
        show_source=False,  # two thirds of the time and of the pages
    )
    pdoc.pdoc(*MODULES, output_directory=directory)
    print(f"{directory / 'index.html'}: {len(list(directory.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
