"""Who imports whom, by parsing every module (docs/architecture.md has the same table)."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bare_python import EXECUTOR, run_with

PROJECT = Path(__file__).parent.parent

#: The packages inside pocketmq, and what each may import; "pocketmq" is what lies beside them.
MAY_IMPORT = {
    "_accelerator": set(),
    "_extras": set(),
    "_lazy": {"_extras"},
    "blocking_thread": set(),
    "error_kind": set(),
    "kept_task": set(),
    "limited_log": set(),
    "regular_file": set(),
    "message": {"_accelerator"},
    "remoting": {"error_kind", "limited_log", "message"},
    "store": {
        "_accelerator",
        "error_kind",
        "kept_task",
        "limited_log",
        "message",
        "regular_file",
    },
    "table_writer": {"blocking_thread", "error_kind", "kept_task", "remoting"},
    "auth": {"limited_log", "message", "regular_file", "remoting", "table_writer"},
    "monitoring": {"_extras", "kept_task", "limited_log", "remoting"},
    "namesrv": {
        "_extras",
        "auth",
        "blocking_thread",
        "error_kind",
        "kept_task",
        "limited_log",
        "message",
        "monitoring",
        "regular_file",
        "remoting",
    },
    "client": {"auth", "kept_task", "limited_log", "message", "remoting"},
    "broker": {
        "_accelerator",
        "_extras",
        "auth",
        "error_kind",
        "kept_task",
        "limited_log",
        "message",
        "monitoring",
        "remoting",
        "store",
        "table_writer",
    },
    "proxy": {"auth", "client", "error_kind", "kept_task", "limited_log", "message", "remoting"},
    "archive": {"message", "store"},
    "tables": {"_extras", "message", "store"},
    "spark": {"_extras", "_lazy", "archive", "client", "message", "store", "tables"},
    "dashboard": {"auth", "client", "kept_task", "limited_log", "message", "remoting"},
    "pocketmq": {
        "_accelerator",
        "_extras",
        "_lazy",
        "auth",
        "blocking_thread",
        "error_kind",
        "kept_task",
        "limited_log",
        "message",
        "regular_file",
        "remoting",
        "store",
        "table_writer",
        "monitoring",
        "namesrv",
        "client",
        "proxy",
        "broker",
        "archive",
        "tables",
        "spark",
        "dashboard",
    },
    "pyspark_rocketmq": {"spark"},
}

#: Standard modules that a package, or a part of one, has to do without.
MAY_NOT_IMPORT = {
    "message": {"asyncio"},
    "store": {"socket", "ssl"},
    "store/scan": {"asyncio", "pyspark"},
    "tables": {"asyncio", "pyspark"},
    "remoting/bodies": {"asyncio", "socket"},
    "remoting/frames/command.py": {"asyncio", "socket"},
    "remoting/serving/dispatch.py": {"socket"},
    "remoting/frames/first_bytes.py": {"asyncio", "socket"},
    "remoting/frames/frame.py": {"asyncio", "socket"},
    "remoting/headers": {"asyncio", "socket"},
    "remoting/serving/request.py": {"socket"},
    "remoting/frames/splitter.py": {"asyncio", "socket"},
    "namesrv/route_table.py": {"asyncio", "socket", "time"},
    "monitoring/families.py": {"asyncio", "socket", "time"},
    "monitoring/health.py": {"asyncio", "socket", "time"},
    "monitoring/settings.py": {"asyncio", "socket", "time"},
    "monitoring/text_format.py": {"asyncio", "socket", "time"},
    "auth/guard.py": {"asyncio", "socket", "time"},
    "auth/permissions.py": {"asyncio", "socket", "time"},
    "auth/policies.py": {"asyncio", "socket", "time"},
    "auth/signature.py": {"asyncio", "socket", "time"},
    "auth/users.py": {"asyncio", "socket", "time"},
    "dashboard/body_preview.py": {"asyncio", "socket", "time"},
    "dashboard/chart.py": {"asyncio", "socket", "time"},
    "dashboard/guard.py": {"asyncio", "socket", "time"},
    "dashboard/views": {"aiohttp", "jinja2", "socket"},
    "proxy/transport/grpc_codec.py": {"asyncio", "socket"},
    "proxy/transport/http2.py": {"asyncio", "socket", "time"},
    "proxy/port/queue_choice.py": {"asyncio", "socket", "time"},
    "proxy/service": {"socket", "ssl"},
    "broker/pop/assignment.py": {"asyncio", "socket", "time"},
    "broker/pop/buffer.py": {"asyncio", "socket", "time"},
    "broker/pop/check_point.py": {"asyncio", "socket", "time"},
    "broker/pop/in_flight.py": {"asyncio", "socket", "time"},
    "broker/pop/order_info.py": {"asyncio", "socket", "time"},
    "broker/pop/revive_log.py": {"asyncio", "socket", "time"},
    "client/selector/filters.py": {"asyncio", "socket", "time"},
    "client/selector/latency.py": {"asyncio", "socket", "time"},
    "client/selector/penalty.py": {"asyncio", "socket", "time"},
    "client/selector/pipeline.py": {"asyncio", "socket", "time"},
}

#: Heavy third-party packages and the only places that may name them. Whatever else needs Spark or
#: Arrow goes through these.
ONLY_IN = {
    "pyspark": (
        "pyspark_rocketmq",
        "cli/stored/job_progress.py",
        "cli/stored/query.py",
        "spark",
        "demo/spark_report.py",
    ),
    "pyarrow": ("store/scan", "archive", "tables", "spark", "cli/stored/export.py"),
    "deltalake": ("tables/delta_table.py",),
    "fastavro": ("tables/body_decoder.py",),
    "opentelemetry": (
        "broker/tracing.py",
        "client/observation/client_metrics.py",
        "client/observation/telemetry.py",
        "monitoring/otlp.py",
    ),
    "prometheus_client": ("monitoring/text_format.py",),
    "rocksdict": ("cli/administration/auth.py",),
    "yaml": ("cli/administration/auth.py",),
    "google": ("proxy",),
    "h2": ("proxy/transport/http2.py",),
    "lark": ("message/sql_filter/parser.py",),
    "rich": ("cli", "demo"),
    "aiohttp": ("dashboard",),
    "jinja2": ("dashboard/rendering.py",),
    "markupsafe": ("dashboard/rendering.py",),
    "uvloop": ("remoting/serving/service.py",),
}


#: The modules of servers and clients that read the wall clock, and what they need a date for. All
#: else that measures time does so by a clock that cannot be set, as `remoting/monotonic.py` says.
WALL_CLOCK = {
    "broker/broker.py": "the clock that is passed to what stores or shows dates",
    "broker/controller/controller_client.py": "requests to controllers carry the date",
    "broker/controller/group_replication.py": "a text that no other broker registers with",
    "broker/processors/admin/replication.py": "shows how old a time of the file system is",
    "broker/tracing.py": "spans have dates",
    "client/observation/client_metrics.py": "store timestamps are compared with it",
    "client/observation/consume_hooks.py": "hooks see a date",
    "client/consumer/dispatch/expired_requests.py": "deadlines of requests are dates",
    "client/consumer/rebalance/assignment.py": "versions of subscriptions are dates",
    "client/consumer/running_info.py": "shows dates",
    "client/consumer/push_session.py": "shows dates",
    "client/instance.py": "a name that no other client has",
    "client/parameters.py": "shows monotonic times as dates",
    "client/observation/send_hooks.py": "hooks see a date",
    "client/producer/recall.py": "delivery times are dates",
    "client/producer/request_reply.py": "replies carry the date",
    "client/producer/send_header.py": "born timestamps",
    "client/producer/transaction.py": "traces carry dates",
    "client/observation/trace.py": "traces carry dates",
    "message/identity.py": "message ids contain the date",
    "monitoring/exporter.py": "exported figures have dates",
    "proxy/service/message_codec.py": "born, delivery and invisible times are dates",
    "remoting/tls/tls_context.py": "certificates expire at a date",
    "store/message_store.py": "store timestamps",
    "store/index/index_process.py": "index files are named after dates",
    "store/scan/followed_store.py": "dates of files are compared with it",
}

#: What executors of Spark read partitions of files with. Their Python may have no more than numpy
#: and pyarrow.
EXECUTORS_IMPORT = (
    "archive.archive_files",
    "archive.tiered_files",
    "spark.partition_reading",
    "spark.source",
)
#: What reading a partition has no need of: servers, clients, and whatever writes a store.
EXECUTORS_MISS = (
    "auth",
    "broker",
    "cli",
    "client",
    "dashboard",
    "monitoring",
    "namesrv",
    "proxy",
    "remoting",
    "spark.batch_reader",
    "spark.streams",
    "spark.writing",
    "store.index",
    "store.log",
    "store.message_store",
    "store.recovery",
    "store.writer",
    "tables",
)


class Import(NamedTuple):
    """`module` is what an import statement names; `where` is `path:line`."""

    module: str
    where: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def package(self) -> str:
        """The package of ours that it leads into, as in `MAY_IMPORT`; the empty text if none."""
        top, _, rest = self.module.partition(".")
        inner = rest.partition(".")[0]
        if top == "pocketmq" and inner in MAY_IMPORT:
            return inner
        return top if top in MAY_IMPORT else ""


def source_of(part: str) -> Path:
    """Where a package of `MAY_IMPORT`, or a file or folder of one, is."""
    top = part in ("pocketmq", "pyspark_rocketmq")
    path = PROJECT / part if top else PROJECT / "pocketmq" / part
    return path if path.is_dir() else path.with_suffix(".py")


@functools.cache
def modules(part: str) -> list[Path]:
    path = source_of(part)
    if path.suffix == ".py":
        return [path]
    found = sorted({*path.rglob("*.py"), *path.rglob("*.pyx")})
    if part == "pocketmq":
        inner = [path / name for name in MAY_IMPORT]
        found = [file for file in found if not set(inner) & set(file.parents)]
    return found


#: An import as compiled modules write it: from the beginning of a line, and on one line. They share
#: a header with the functions that read and write numbers.
COMPILED_IMPORT = re.compile(
    r"^(?:from|cimport|import) (?!pocketmq\._big_endian\b)([\w.]+)", re.MULTILINE
)


def syntax(path: Path) -> ast.Module:
    """What a module says; nothing for a compiled one, whose language this cannot read."""
    return ast.parse("" if path.suffix == ".pyx" else path.read_text(), str(path))


Block = ast.Module | ast.stmt | ast.ExceptHandler | ast.match_case


def statements(block: Block, *, types: bool = True) -> Iterator[ast.stmt]:
    """The statements in a block, and in those. There are ten times as many expressions, which
    `ast.walk` would visit too. Without `types`, what is only for type checkers is left out."""
    inner: list[Block] = [
        each
        for name in ("body", "handlers", "cases", "orelse", "finalbody")
        for each in getattr(block, name, ())
    ]
    for each in inner:
        only_types = isinstance(each, ast.If) and ast.unparse(each.test).endswith("TYPE_CHECKING")
        if only_types and not types:
            continue
        if isinstance(each, ast.stmt):
            yield each
        yield from statements(each, types=types)


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """The absolute imports; only tests import relatively, and within their folder."""
    found: list[Import] = []
    if path.suffix == ".pyx":
        where = str(path.relative_to(PROJECT))
        return tuple(Import(name, where) for name in COMPILED_IMPORT.findall(path.read_text()))
    for node in statements(syntax(path)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        where = f"{path.relative_to(PROJECT)}:{node.lineno}"
        if isinstance(node, ast.Import):
            found += [Import(alias.name, where) for alias in node.names]
        elif not node.level:
            if node.module == "pocketmq":
                found += [Import(f"pocketmq.{alias.name}", where) for alias in node.names]
            else:
                found.append(Import(node.module or "", where))
    return tuple(found)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_down_only(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    files = modules(package)
    assert files, f"{package} has no modules"
    wrong = [
        f"{found.where} imports {found.module}"
        for path in files
        for found in imports(path)
        if found.package and found.package not in allowed
    ]
    assert not wrong


@pytest.mark.parametrize("part", MAY_NOT_IMPORT)
def test_parts_without_io(part: str) -> None:
    files = modules(part)
    assert files, f"{part} has no modules"
    wrong = [
        f"{found.where} imports {found.module}"
        for path in files
        for found in imports(path)
        if found.top in MAY_NOT_IMPORT[part]
    ]
    assert not wrong


@pytest.mark.parametrize("part", ["proxy/rpc.py", "proxy/service", "proxy/port"])
def test_the_services_of_the_proxy_know_no_transport(part: str) -> None:
    wrong = [
        f"{found.where} imports {found.module}"
        for path in modules(part)
        for found in imports(path)
        if found.module.startswith("pocketmq.proxy.transport")
    ]
    assert not wrong


@pytest.mark.parametrize("heavy", ONLY_IN)
def test_heavy_packages_are_named_in_their_rooms_only(heavy: str) -> None:
    rooms = [source_of(room) for room in ONLY_IN[heavy]]
    wrong = [
        found.where
        for package in MAY_IMPORT
        for path in modules(package)
        if not any(path == room or room in path.parents for room in rooms)
        for found in imports(path)
        if found.top == heavy
    ]
    assert not wrong


#: In the text of each module that reads the wall clock, and of some others.
DATES = re.compile(r"\btime\.time\b|\btime_ns\b|from time import|\.(now|utcnow|today)\b")


def test_only_what_needs_a_date_reads_the_wall_clock() -> None:
    found = set()
    for package in ("message", "remoting", "store", "auth", "monitoring", "namesrv", "client",
                    "broker", "proxy"):  # fmt: skip
        for path in modules(package):
            if DATES.search(path.read_text()) is None:
                continue  # and none of its nodes is one
            if any(_reads_wall_clock(node) for node in ast.walk(syntax(path))):
                found.add(str(path.relative_to(PROJECT / "pocketmq")))
    assert found == set(WALL_CLOCK)


def _reads_wall_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        return any(alias.name in ("time", "time_ns") for alias in node.names)
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else node.value
    name = owner.id if isinstance(owner, ast.Name) else owner
    return (name, node.attr) in {
        ("time", "time"),
        ("time", "time_ns"),
        ("datetime", "now"),
        ("datetime", "utcnow"),
        ("date", "today"),
    }


def test_tests_and_benchmarks_are_imported_by_no_package() -> None:
    wrong = [
        found.where
        for package in MAY_IMPORT
        for path in modules(package)
        for found in imports(path)
        if found.top in ("tests", "bench", "examples")
    ]
    assert not wrong


def test_the_table_names_every_package_of_the_wheel() -> None:
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert wheel["packages"] == ["pocketmq"]
    assert list(wheel["force-include"]) == ["pyspark_rocketmq.py"]
    inner = {path.parent.name for path in PROJECT.glob("pocketmq/*/__init__.py")}
    assert inner - set(MAY_IMPORT) == {"cli", "demo", "testing"}


def test_the_names_at_the_top_are_links_into_the_package() -> None:
    on_disk = {path.parent.name for path in PROJECT.glob("*/__init__.py")} - {"bench", "pocketmq"}
    for name in on_disk:
        assert (PROJECT / name).is_symlink(), f"{name}/ belongs into pocketmq/"
        assert (PROJECT / name).resolve() == PROJECT / "pocketmq" / name


def test_nothing_is_imported_through_the_links() -> None:
    names = "|".join(MAY_IMPORT.keys() - {"pocketmq", "pyspark_rocketmq"})
    # An import statement has one line, or begins one. Sentences may begin like that as well.
    looks_like_it = re.compile(rf"^\s*(from|import)\s+({names})\b", re.MULTILINE)
    wrong = [
        found.where
        for folder in ("pocketmq", "tests", "bench", "examples", "scripts")
        for path in (PROJECT / folder).rglob("*.py")
        if looks_like_it.search(path.read_text())
        for found in imports(path)
        if found.top in MAY_IMPORT and found.top not in ("pocketmq", "pyspark_rocketmq")
    ]
    assert not wrong


def test_spark_takes_no_folder_of_ours_for_its_own() -> None:
    # PySpark's workers would take a package of that name for theirs.
    assert not (PROJECT / "spark").exists()
    assert not (PROJECT / "pyspark").exists()


def test_only_the_file_module_of_the_store_touches_files() -> None:
    """Opening, mapping, extending, syncing and removing; `file_copies` is the part of it that
    copies whole files.

    The lock file holds no data, and what reads a store from outside (scan, check) maps it so that
    nothing is written.
    """
    forbidden = {
        "open", "mmap.mmap", "os.open", "os.remove", "os.unlink", "os.rename", "os.replace",
        "os.fsync", "os.fdatasync", "os.ftruncate", "os.truncate", "os.posix_fallocate",
        "os.pwrite", "shutil.rmtree",
    }  # fmt: skip
    wrong = [
        f"{path.relative_to(PROJECT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in modules("store")
        if path
        not in (
            source_of("store/files"),
            source_of("store/file_copies"),
            source_of("store/store_lock"),
            source_of("store/check/dry_files"),
        )
        and source_of("store/scan") not in path.parents
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in forbidden
    ]
    assert not wrong


def test_importing_pocketmq_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "import pocketmq, pocketmq.cli\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'rich', 'aiohttp', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_the_data_source_is_a_public_name_that_is_imported_on_use() -> None:
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    program = (
        "import sys, pocketmq\n"
        "assert 'pyspark' not in sys.modules\n"
        "assert pocketmq.spark.RocketMQDataSource.name() == 'rocketmq'\n"
        "from pyspark_rocketmq import DefaultSource\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_executors_load_only_what_reading_takes() -> None:
    """Each of them imports the source in a new process, again and again."""
    pytest.importorskip("pyspark", reason="pip install 'pocketmq[spark]'")
    program = "".join(f"import pocketmq.{module}\n" for module in EXECUTORS_IMPORT)
    program += "print(*(name for name in sys.modules if name.startswith('pocketmq.')))"
    ended = run_with(EXECUTOR, program)
    assert ended.returncode == 0, ended.stderr
    loaded = [name.removeprefix("pocketmq.") + "." for name in ended.stdout.split()]
    assert "spark.partition_reading." in loaded
    missed = tuple(f"{name}." for name in EXECUTORS_MISS)
    assert not [name for name in loaded if name.startswith(missed)]


#: Base classes whose only subclass is in another file, and why each is right.
ONE_SUBCLASS = {
    "TopicAdmin": "Admin is one flat class of request families, a file each",
    "GroupAdmin": "as TopicAdmin",
    "OffsetAdmin": "as TopicAdmin",
    "MessageAdmin": "as TopicAdmin",
    "ConfigAdmin": "as TopicAdmin",
    "Admin": "public by itself; that of the dashboard leaves large bodies compressed",
    "PullConsumer": "as Admin",
    "Producer": "a TransactionProducer is a Producer for applications as well",
    "StoreConfig": "broker.conf holds the store's settings beside the broker's own",
    "Files": "a check shows the files of a store and keeps what is written to itself",
    "MappedFile": "as Files, for a file that is mapped",
    "ClientOptions": "keyword arguments of every client; those of a producer are more",
    "EmbeddedServer": "public by itself; the test plugin adds faults and a clock",
    "ResetOffsetBody": "two bodies of the protocol, one of which has more fields",
}


def test_no_class_is_split_over_a_base_class() -> None:
    """A base class with a single child in another file hides one class in two places.

    Compose instead, or keep the file whole. Protocols and exceptions say what others may do, so
    they are fine.
    """
    bases: dict[str, list[tuple[str, Path]]] = {}
    defined: dict[str, Path] = {}
    kinds: dict[str, set[str]] = {}
    for package in MAY_IMPORT:
        for path in modules(package):
            for node in statements(syntax(path)):
                if isinstance(node, ast.ClassDef):
                    defined[node.name] = path
                    names = {ast.unparse(base).partition("[")[0] for base in node.bases}
                    kinds[node.name] = names
                    for name in names:
                        bases.setdefault(name, []).append((node.name, path))
    split = {
        base: children[0][0]
        for base, children in bases.items()
        if len(children) == 1
        and base in defined
        and defined[base] != children[0][1]
        and not kinds[base] & {"Protocol", "Exception"}
        and not base.endswith("Error")
    }
    assert set(split) == set(ONE_SUBCLASS), split


def imported_at_runtime(path: Path) -> set[str]:
    """The modules of ours that `path` imports, but for type checkers."""
    if path.suffix == ".pyx":
        return {found.module for found in imports(path) if found.top == "pocketmq"}

    found = set()
    for node in statements(syntax(path), types=False):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] == "pocketmq"}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """Each module of ours, with those that it imports at run time."""
    files = {
        ".".join(path.relative_to(PROJECT).with_suffix("").parts): path
        for path in modules_and_compiled()
    }
    return {name: imported_at_runtime(path) & files.keys() for name, path in files.items()}


def modules_and_compiled() -> list[Path]:
    package = PROJECT / "pocketmq"
    found = sorted({*package.rglob("*.py"), *package.rglob("*.pyx")})
    return [path for path in found if path.name != "__init__.py"]


def in_circles(graph: Mapping[str, set[str]]) -> set[str]:
    """The names from which a way leads back to themselves."""
    reached = {name: set(to) for name, to in graph.items()}
    while True:
        further = {name: to.union(*(reached[one] for one in to)) for name, to in reached.items()}
        if further == reached:
            return {name for name, to in reached.items() if name in to}
        reached = further


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not in_circles(arrows())


def test_no_folders_of_one_package_import_each_other_in_a_circle() -> None:
    """A module beside the folders may stand over all of them or under all of them."""
    folders: dict[str, set[str]] = {}
    for name, imported in arrows().items():
        for other in imported:
            pairs = zip(name.split(".")[:-1], other.split(".")[:-1], strict=False)
            shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            one, two = (".".join(each.split(".")[:-1][: shared + 1]) for each in (name, other))
            if shared < min(name.count("."), other.count(".")):
                folders.setdefault(one, set()).add(two)
                folders.setdefault(two, set())
    assert not in_circles(folders)


#: Modules that users import names from, which therefore say with `__all__` what they offer.
DOORS = {
    "client/errors.py",
    "codes.py",
    "embedded.py",
    "errors.py",
    "hooks.py",
    "rebalance.py",
    "selector.py",
    "sync.py",
    "telemetry.py",
    "types.py",
}


def defined(tree: ast.Module) -> set[str]:
    """The names of the classes, functions and values of a module."""
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    targets = [
        target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    ]
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def test_only_doors_list_what_they_offer() -> None:
    """Inside the package an underscore says what is private. `__all__` is for the modules that
    users import from and for those that pass on what another module defines."""
    for path in modules_and_compiled():
        tree = ast.parse(path.read_text()) if path.suffix == ".py" else ast.Module([], [])
        where = path.relative_to(PROJECT / "pocketmq").as_posix()
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                listed = {
                    each.value
                    for each in ast.walk(node.value)
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                }
                assert where in DOORS or listed - defined(tree), f"{where} lists its own names"


#: Methods that change files. The proofs of durability see what goes through store/files.py only.
CHANGES_FILES = {"unlink", "write_bytes", "write_text", "rmdir", "mkdir", "touch", "symlink_to"}


def test_a_broker_changes_files_through_the_store() -> None:
    for path in (PROJECT / "pocketmq" / "broker").rglob("*.py"):
        called = {
            node.func.attr
            for node in ast.walk(syntax(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & CHANGES_FILES, path
