"""The wheel: what is in it, and that it works beside modules of the user's own.

Nothing is downloaded: hatchling builds without an environment of its own, and the virtual
environments that the wheel is installed into take other packages from the tests' environment.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq._accelerator import MODULES
from pocketmq._extras import EXTRAS
from pocketmq.remoting.serving.service import ExitCode
from tests.cli.running import PROJECT, Running
from tests.unpacking import unpack

pytest.importorskip("hatchling", reason="pip install 'pocketmq[test]'")

#: The versions of Python that the package names.
SUPPORTED = re.findall(r"Python :: (3\.\d+)", (PROJECT / "pyproject.toml").read_text())

#: Compiled for these tests only, so not optimised.
QUICK_BUILD = {"CFLAGS": "-O0"}

#: Seconds for one command, such as a build, which takes twenty of CPU time, on a busy machine.
PATIENCE = 800
pytestmark = pytest.mark.timeout(900)

#: Names that are also names of packages inside pocketmq. Each module fails when it is imported.
USERS_OWN = (
    "broker.py",
    "client.py",
    "errors.py",
    "message/__init__.py",
    "namesrv.py",
    "remoting.py",
    "store/__init__.py",
    "testing.py",
)

ROUND_TRIP = """
import asyncio
import sys

from pocketmq import Message, Producer, PullConsumer, PushConsumer, sync

async def round_trip(namesrv):
    async with Producer("shop", namesrv=namesrv) as producer:
        await producer.send(Message("orders", b"42", tags="paid"))
    async with PullConsumer("audit", namesrv=namesrv, start="begin") as consumer:
        await consumer.subscribe("orders")
        async for message in consumer:
            print("received", message.body)
            break

async def main():
    if len(sys.argv) > 1:
        await round_trip(sys.argv[1])
        with sync.Producer("shop", namesrv=sys.argv[1]) as producer:
            producer.send(Message("orders", b"43"))
        return
    from pocketmq.embedded import EmbeddedServer
    async with EmbeddedServer() as server:
        await round_trip(server.namesrv)

asyncio.run(main())
"""

SUITE = """
from pocketmq import Message, Producer
from pocketmq.testing import RocketMQ

async def test_orders_are_sent(rocketmq: RocketMQ) -> None:
    async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        await producer.send(Message("orders", b"42"))
    assert [message.body for message in await rocketmq.drain("orders")] == [b"42"]
"""


def run(*arguments: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd, env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", **variables}, capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def succeed(*arguments: object, cwd: Path, **variables: str) -> str:
    ended = run(*arguments, cwd=cwd, **variables)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def build(kind: str, source: Path, target: Path, **variables: str) -> Path:
    command = (sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target)
    succeed(*command, cwd=source, **variables)
    [built] = target.iterdir()
    return built


class Environment:
    """A virtual environment with a wheel installed, or with a checkout."""

    def __init__(self, directory: Path, wheel: Path, *, everything: bool, **variables: str) -> None:
        succeed(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory.parent)
        self.python = directory / "bin" / "python"
        [self.site_packages] = directory.glob("lib/*/site-packages")
        if everything:
            # Packages of the tests' environment, but not what a .pth file there adds to the path.
            tests = Path(pytest.__file__).parent.parent
            (self.site_packages / "tests.pth").write_text(f"{tests}\n")
        else:
            for requirement in project()["dependencies"]:
                self._link(re.split(r"[>=;]", requirement)[0])
        succeed(
            sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet",
            "--no-index", "--no-deps", "--no-build-isolation",
            *(["--editable"] * wheel.is_dir()), wheel, cwd=directory, **variables,
        )  # fmt: skip

    def _link(self, distribution: str) -> None:
        try:
            found = importlib.metadata.distribution(distribution)
        except importlib.metadata.PackageNotFoundError:
            return  # its marker excludes this platform or Python
        for top in {file.parts[0] for file in found.files or ()} - {".."}:
            link = self.site_packages / top
            if not link.exists() and not top.startswith("__"):
                link.symlink_to(Path(str(found.locate_file(top))))


def project() -> dict[str, list[str]]:
    loaded: dict[str, list[str]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())[
        "project"
    ]
    return loaded


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", PROJECT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def sources(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked: what a checkout is without its links at the top level."""
    target = tmp_path_factory.mktemp("sources")
    unpack(sdist, target)
    [directory] = target.iterdir()
    return directory


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one for all platforms."""
    return build("wheel", PROJECT, tmp_path_factory.mktemp("wheel"), POCKETMQ_PURE_PYTHON="1")


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("full") / "venv", wheel, everything=True)


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base") / "venv", wheel, everything=False)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A user's directory, whose modules must not be taken for those of pocketmq."""
    for name in USERS_OWN:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise ImportError('pocketmq imports {name} of the user')\n")
    (tmp_path / "script.py").write_text(ROUND_TRIP)
    return tmp_path


def unpacked(wheel: Path, directory: Path) -> Path:
    """The files of a wheel, for a Python that is started there."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheels_from_the_checkout_and_from_the_sdist_are_the_same(
    wheel: Path, sources: Path, tmp_path: Path
) -> None:
    from_sdist = build("wheel", sources, tmp_path, POCKETMQ_PURE_PYTHON="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert from_sdist.name == wheel.name
    assert contents(from_sdist) == contents(wheel)
    # To the byte: a build can be reproduced.
    assert from_sdist.read_bytes() == wheel.read_bytes()


def test_an_sdist_can_be_reproduced(sdist: Path, sources: Path, tmp_path: Path) -> None:
    assert build("sdist", sources, tmp_path).read_bytes() == sdist.read_bytes()


def test_an_index_takes_the_files(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="pip install twine")
    shown = succeed(
        sys.executable, "-m", "twine", "--no-color", "check", "--strict", wheel, sdist,
        cwd=tmp_path,
    )  # fmt: skip
    assert shown.count("PASSED") == 2


def test_the_wheel_has_one_package_and_the_module_that_spark_looks_for(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in contents(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "pocketmq",
        "pyspark_rocketmq.py",
    }


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "pocketmq").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        # Of the accelerator, which this wheel is without.
        and path.suffix not in (".pyx", ".pxd", ".so")
        and path.name != "_pure_python.txt"
    }
    assert files <= set(contents(wheel))
    assert {"pocketmq/py.typed", "pocketmq/__init__.pyi"} <= files


@pytest.fixture(scope="module")
def compiled(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that a build makes unless it is told something else."""
    need_compiler()
    return build("wheel", sources, tmp_path_factory.mktemp("compiled"), **QUICK_BUILD)


def need_compiler() -> None:
    pytest.importorskip("Cython", reason="pip install cython setuptools")
    if shutil.which(sysconfig.get_config_var("CC").split()[0]) is None:
        pytest.skip("a C compiler is not installed")


def shown_version(python: Path, cwd: Path, **variables: str) -> str:
    return succeed(python, "-m", "pocketmq", "--version", cwd=cwd, **variables).strip()


def test_a_build_compiles_the_accelerator(compiled: Path, wheel: Path, tmp_path: Path) -> None:
    assert not compiled.name.endswith("-py3-none-any.whl")
    modules = sorted(contents(compiled).keys() - contents(wheel).keys())
    assert [module.partition(".")[0].replace("/", ".") for module in modules] == sorted(MODULES)
    python, place = Path(sys.executable), unpacked(compiled, tmp_path / "compiled")
    loaded = f"import {', '.join(MODULES)}"
    succeed(python, "-c", loaded, cwd=place)
    assert shown_version(python, place).endswith(" (compiled)")
    assert shown_version(python, place, POCKETMQ_PURE_PYTHON="1").endswith(
        " (pure Python: POCKETMQ_PURE_PYTHON is set)"
    )


def test_every_compiled_module_is_looked_for(sources: Path) -> None:
    found = {path.relative_to(sources) for path in (sources / "pocketmq").rglob("*.pyx")}
    assert found == {Path(*module.split(".")).with_suffix(".pyx") for module in MODULES}
    assert (sources / "scripts" / "build_accelerator.py").is_file()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"CC": "no-such-compiler"}, "no C compiler at install"),
        ({"CC": "false"}, "the C compiler failed at install"),
        ({"POCKETMQ_PURE_PYTHON": "1"}, "built with POCKETMQ_PURE_PYTHON"),
    ],
)
def test_a_build_that_cannot_compile_says_so_and_goes_on(
    wheel: Path, sources: Path, tmp_path: Path, variables: dict[str, str], reason: str
) -> None:
    pytest.importorskip("Cython", reason="pip install cython setuptools")
    ended = run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist",
        cwd=sources, **variables,
    )  # fmt: skip
    assert ended.returncode == 0
    line = f"pocketmq is installed without its compiled modules, and slower: {reason}"
    assert (ended.stdout + ended.stderr).splitlines().count(line) == 1
    [built] = (tmp_path / "dist").iterdir()
    assert built.name == wheel.name
    place = unpacked(built, tmp_path / "built")
    assert shown_version(Path(sys.executable), place).endswith(f" (pure Python: {reason})")


def test_a_missing_compiler_is_an_error_where_the_accelerator_is_required(
    sources: Path, tmp_path: Path
) -> None:
    pytest.importorskip("Cython", reason="pip install cython setuptools")
    ended = run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path,
        cwd=sources, POCKETMQ_ACCELERATOR="1", CC="no-such-compiler",
    )  # fmt: skip
    assert ended.returncode != 0
    assert "no-such-compiler" in ended.stdout + ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_wheel_takes_nothing_that_was_compiled_before(
    wheel: Path, sources: Path, tmp_path: Path
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(sources, checkout)
    (checkout / "pocketmq" / "store" / "_compiled_read.abi3.so").write_bytes(b"of other sources")
    built = build("wheel", checkout, tmp_path / "dist", POCKETMQ_PURE_PYTHON="1")
    assert built.read_bytes() == wheel.read_bytes()


@pytest.mark.long  # in CI, `make accelerator` compiles in place with the same script
def test_an_editable_install_compiles_in_place(sources: Path, tmp_path: Path) -> None:
    need_compiler()
    pytest.importorskip("editables", reason="pip install editables")
    checkout = tmp_path / "checkout"
    shutil.copytree(sources, checkout)

    python = Environment(tmp_path / "venv", checkout, everything=True, **QUICK_BUILD).python
    assert shown_version(python, tmp_path).endswith(" (compiled)")


@pytest.mark.long
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_wheel_of_each_python_that_is_installed_loads(
    sources: Path, tmp_path: Path, version: str
) -> None:
    need_compiler()
    python = interpreter(version)
    # What builds wheels has no compiled parts that it needs, so the tests' own packages do.
    succeed(
        python, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=sources,
        PYTHONPATH=str(Path(pytest.__file__).parent.parent), **QUICK_BUILD,
    )  # fmt: skip
    [built] = tmp_path.iterdir()
    tag = f"cp{version.replace('.', '')}"
    assert f"-{tag}-{tag}-" in built.name
    loaded = f"import {', '.join(module for module in MODULES if 'store' in module)}"
    succeed(python, "-c", loaded, cwd=unpacked(built, tmp_path / "installed"))


def interpreter(version: str) -> Path:
    """The one of that version on the path, or of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    of_pyenv = sorted(versions.glob(f"{version}.*/bin/python{version}"))
    found = of_pyenv[-1] if of_pyenv else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"Python {version} is not installed")
    return Path(found)


def test_the_sdist_has_no_links(sources: Path) -> None:
    assert [path for path in sources.rglob("*") if path.is_symlink()] == []
    assert not {"broker", "client", "namesrv", "store"} & {path.name for path in sources.iterdir()}


def test_it_works_beside_modules_of_the_user(full: Environment, users: Path) -> None:
    assert "received b'42'" in succeed(full.python, "script.py", cwd=users)
    where = succeed(full.python, "-c", "import pocketmq; print(pocketmq.__file__)", cwd=users)
    assert where.startswith(str(full.site_packages))


def test_commands_work_beside_modules_of_the_user(full: Environment, users: Path) -> None:
    assert "servers, messages, and administration" in succeed(
        full.python, "-m", "pocketmq", "--help", cwd=users
    )
    assert "usage: pocketmq serve" in succeed(
        full.python.with_name("pocketmq"), "serve", "--help", cwd=users
    )


def test_the_suite_of_the_readme_works_beside_modules_of_the_user(
    full: Environment, users: Path
) -> None:
    (users / "test_orders.py").write_text(SUITE)
    (users / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    shown = succeed(full.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=users)
    assert "1 passed" in shown


def test_a_checkout_without_the_links_works(sources: Path, users: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(sources)!r}); import pocketmq\n"
    program += "assert pocketmq.__file__.startswith(sys.path[0])\n" + ROUND_TRIP
    assert "received b'42'" in succeed(sys.executable, "-c", program, cwd=users)


@pytest.fixture
def namesrv() -> Iterator[str]:
    with Running("serve", "--ephemeral", "--namesrv-port", "0", "--listen-port", "0") as server:
        yield server.wait_for(r"listening on ([\d.:]+)")[1]


def test_a_client_needs_the_base_install_only(base: Environment, users: Path, namesrv: str) -> None:
    absent = "import importlib.util as u; print([m for m in ('numpy', 'lark', 'rich', 'pyspark',"
    absent += " 'pyarrow', 'pytest') if u.find_spec(m)])"
    assert succeed(base.python, "-c", absent, cwd=users).strip() == "[]"
    assert "received b'42'" in succeed(base.python, "script.py", namesrv, cwd=users)


def test_commands_for_clients_need_the_base_install_only(
    base: Environment, users: Path, namesrv: str
) -> None:
    pocketmq = base.python.with_name("pocketmq")
    assert "usage: pocketmq" in succeed(pocketmq, "--help", cwd=users)
    (users / "lines").write_text("one\ntwo\n")
    succeed(pocketmq, "send", "-n", namesrv, "numbers", "-f", "lines", cwd=users)
    shown = succeed(pocketmq, "pull", "-n", namesrv, "numbers", cwd=users)
    assert sorted(shown.split()) == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["broker"], "server"),
        (["serve", "--ephemeral"], "server"),
        (["query", "SELECT 1", "--store", "."], "spark"),
        (["demo"], "demo"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    base: Environment, users: Path, arguments: list[str], extra: str
) -> None:
    pocketmq = base.python.with_name("pocketmq")
    assert f"usage: pocketmq {arguments[0]}" in succeed(pocketmq, arguments[0], "--help", cwd=users)
    ended = run(pocketmq, *arguments, cwd=users)
    assert ended.returncode == ExitCode.UNAVAILABLE
    assert ended.stderr == (
        f"error: pocketmq {arguments[0]} needs the package numpy, which is not installed: "
        f"pip install 'pocketmq[{extra}]'\n"
    )


def test_the_metadata_name_the_extras_and_urls(wheel: Path) -> None:
    [text] = [v for name, v in contents(wheel).items() if name.endswith("METADATA")]
    metadata = text.decode()
    provided = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    assert provided == {*EXTRAS, "all", "docs", "test", "lint"}
    assert re.findall(r"^Project-URL: (.+)$", metadata, re.MULTILINE)


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_each_extra_brings_the_modules_that_errors_name(extra: str) -> None:
    installs: dict[str, list[str]] = tomllib.loads((PROJECT / "pyproject.toml").read_text())[
        "project"
    ]["optional-dependencies"]

    def packages(name: str) -> set[str]:
        found: set[str] = set()
        for requirement in installs[name]:
            if inner := re.fullmatch(r"pocketmq\[(.+)\]", requirement):
                for other in inner[1].split(","):
                    found |= packages(other)
            else:
                found.add(re.split(r"[<>=;]", requirement)[0])
        return found

    imported = {
        "opentelemetry-api": "opentelemetry",
        "opentelemetry-exporter-otlp-proto-grpc": "opentelemetry.exporter.otlp.proto.grpc",
        "opentelemetry-sdk": "opentelemetry.sdk",
        "prometheus-client": "prometheus_client",
        "protobuf": "google.protobuf",
        "PyYAML": "yaml",
    }
    modules = {imported.get(name, name) for name in packages(extra)}
    assert modules == set(EXTRAS[extra])
