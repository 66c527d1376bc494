"""Pages as HTML: the templates, and their functions for formatting figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pocketmq.dashboard.body_preview import excerpt, printable
from pocketmq.dashboard.chart import sparkline
from pocketmq.dashboard.wording import grouped, moment, short_size, short_time
from pocketmq.remoting.codes import release_of

_NOTHING: Final = Markup('<span class="none" aria-label="not known">–</span>')


class Renderer:
    """Renders templates. All values are escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("pocketmq.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "duration": _duration,
            "excerpt": excerpt,
            "moment": _moment,
            "number": _number,
            "segment": segment,
            "printable": printable,
            "rate": _rate,
            "release": release_of,
            "size": _size,
        }
        self._environment.globals |= {"link": link, "sparkline": sparkline}

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the text of a page."""
        return self._environment.get_template(template).render(values)


def segment(text: str) -> str:
    """Quote a name as a part of an address's path."""
    return quote(text, safe="")


def link(path: str, **parameters: object) -> str:
    """Return an address of the dashboard, without parameters that are empty, None or False."""
    given = {
        name.rstrip("_"): "1" if value is True else str(value)
        for name, value in parameters.items()
        if value is not None and value is not False and value != ""
    }
    return f"{path}?{urlencode(given)}" if given else path


def _number(value: float | None) -> str:
    return _NOTHING if value is None else grouped(value)


def _rate(value: float | None) -> str:
    """Format messages a second, always with one decimal, so that columns align."""
    return _NOTHING if value is None else f"{value:,.1f}"


def _size(value: float | None) -> str:
    return _NOTHING if value is None else short_size(value)


def _duration(seconds: int | None) -> str:
    return _NOTHING if seconds is None else short_time(seconds) or ""


def _moment(milliseconds: int | None) -> str:
    """Format a time in UTC; the script converts it to the browser's local time."""
    if not milliseconds or milliseconds < 0:
        return _NOTHING
    time = moment(milliseconds)
    return Markup('<time datetime="{}">{}</time>').format(
        time.isoformat(timespec="milliseconds"), f"{time:%Y-%m-%d %H:%M:%S} UTC"
    )
