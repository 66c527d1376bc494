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
    "client.admin.admin",
    "client.admin.configs",
    "client.admin.groups",
    "client.admin.offsets",
    "client.admin.servers",
    "client.admin.topics",
    "client.consumer.consume_hooks",
    "client.consumer.pull_offsets",
    "client.consumer.push_topics",
    "client.credentials",
    "client.errors",
    "client.options",
    "client.producer.hooks",
    "client.producer.queue_choice",
    "client.selector",
    "message.message",
    "remoting.bodies",
    "remoting.codes",
    "store.datasource",
)


def main() -> None:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    # Public names are loaded on use; the generator looks at what is there.
    for name in pocketmq.__all__:
        setattr(pocketmq, name, getattr(pocketmq, name))
    pdoc.render.configure(
        docformat="markdown",
        footer_text=f"pocketmq {pocketmq.__version__}",
        show_source=False,  # two thirds of the time and of the pages
    )
    pdoc.pdoc(*MODULES, output_directory=directory)
    print(f"{directory / 'index.html'}: {len(list(directory.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
