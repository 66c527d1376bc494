"""Build the API reference from the docstrings: python scripts/build_docs.py [DIRECTORY].

The directory is build/docs unless given. Needs the extras `all` and `docs`. Exits with 1, after a
line for each mistake, if a public name has no docstring, or if a link of a page in Markdown or of
the reference leads nowhere.
"""

from __future__ import annotations

import html.parser
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pdoc
import pdoc.render

import pocketmq

PROJECT = Path(__file__).parents[1]

#: Modules that public classes get methods from, or that hold what these return.
BEHIND = (
    "pocketmq.client.admin.configs",
    "pocketmq.client.admin.groups",
    "pocketmq.client.admin.offsets",
    "pocketmq.client.admin.servers",
    "pocketmq.client.admin.topics",
    "pocketmq.client.consumer.router",
    "pocketmq.remoting.bodies",
    "pocketmq.sync_client",
    "pocketmq.sync_push",
)


def public_modules() -> list[str]:
    """`pocketmq`, and the modules in its list of public names."""
    stub = Path(pocketmq.__file__).with_suffix(".pyi").read_text()
    names = re.findall(r"^from \. import (\w+)", stub, re.MULTILINE)
    return ["pocketmq", *(f"pocketmq.{name}" for name in names)]


def public_names(module: str) -> list[str]:
    """What `from MODULE import *` brings."""
    names: dict[str, object] = {}
    exec(f"from {module} import *", names)
    return sorted({*names} - {"__builtins__", "__version__"})


def undocumented(modules: Iterable[str]) -> Iterator[str]:
    """Public classes, functions and methods without a docstring."""
    for module in modules:
        for name in public_names(module):
            value = getattr(import_module(module), name)
            if not getattr(value, "__module__", "").startswith("pocketmq"):
                continue
            if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value):
                yield f"{module}.{name} has no docstring"
            if not inspect.isclass(value):
                continue
            for member, function in inspect.getmembers(value, _is_method):
                if _is_ours(value, member) and not inspect.getdoc(function):
                    yield f"{module}.{name}.{member} has no docstring"


def _is_ours(owner: type, member: str) -> bool:
    """Return whether a member is public, and not what a class of another package has."""
    if member.startswith("_"):
        return False
    source = next(base for base in owner.__mro__ if member in vars(base))
    return source.__module__.startswith("pocketmq")


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, property)


@cache
def anchors(page: Path) -> set[str]:
    """The targets within a page: what GitHub makes of headings, and the ids of HTML."""
    if page.suffix == ".html":
        return set(_Page.of(page).ids)
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """The targets of a page's links."""
    if page.suffix == ".html":
        return _Page.of(page).links
    return re.findall(r"\]\(([^)\s]+)\)", page.read_text())


def broken_links(pages: Iterable[Path]) -> Iterator[str]:
    """Links to files and anchors that are not there. Other sites are not asked."""
    for page in pages:
        for link in links(page):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page.parent / unquote(parts.path) if parts.path else page
            missing = not target.exists()
            if not missing and parts.fragment and target.suffix in (".md", ".html"):
                missing = unquote(parts.fragment) not in anchors(target)
            if missing:
                yield f"{page}: the link {link} leads nowhere"


def markdown_pages() -> list[Path]:
    """The pages that people read in the repository."""
    top = (PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    return [*top, *sorted((PROJECT / "docs").glob("**/*.md"))]


class _Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []

    @classmethod
    def of(cls, page: Path) -> _Page:
        parsed = cls()
        parsed.feed(page.read_text())
        return parsed

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name == "href" and tag == "a" and value:
                self.links.append(value)


def build(directory: Path) -> list[Path]:
    """Write the reference; its pages."""
    modules = public_modules()
    for module in modules:
        # Names that other modules define are shown where they are public.
        import_module(module).__dict__["__all__"] = public_names(module)
        for name in public_names(module):
            getattr(import_module(module), name)
    pdoc.render.configure(
        docformat="markdown",
        footer_text=f"pocketmq {pocketmq.__version__}",
        show_source=False,  # two thirds of the time and of the pages
    )
    pdoc.pdoc(*modules, *BEHIND, output_directory=directory)
    pages = sorted(directory.rglob("*.html"))
    for page in pages:
        _link_to_what_is_shown(page)
    return pages


def _link_to_what_is_shown(page: Path) -> None:
    """pdoc links `Class.attribute` also where it shows no such attribute: link to the class."""
    ids = set(_Page.of(page).ids)

    def shown(match: re.Match[str]) -> str:
        name: str = match[1]
        while name not in ids and "." in name:
            name = name.rpartition(".")[0]
        return f'href="#{name}"'

    page.write_text(re.sub(r'href="#([\w.]+)"', shown, page.read_text()))


def main() -> int:
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    pages = build(directory)
    print(f"{directory / 'index.html'}: {len(pages)} pages")
    mistakes = [
        *undocumented(public_modules()),
        *broken_links(markdown_pages()),
        *broken_links(pages),
    ]
    for mistake in mistakes:
        print(f"error: {mistake}", file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
