"""Damage to the files of a store: every kind of file, every way that a disk or a person has."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

#: Kinds of files, and what their paths in the store look like.
KINDS: Final = {
    "log": re.compile(r"commitlog/.*"),
    "queue": re.compile(r"consumequeue/.*"),
    "index": re.compile(r"index/.*"),
    "table": re.compile(r"config/.*\.json"),
    "backup": re.compile(r"config/.*\.bak"),
    "checkpoint": re.compile(r"checkpoint"),
    "abort": re.compile(r"abort"),
    "lock": re.compile(r"lock"),
    "timer log": re.compile(r"timerlog/.*"),
    "timer wheel": re.compile(r"timerwheel"),
    "timer checkpoint": re.compile(r"config/timercheck"),
}
STRANGERS: Final = ("README", "core", ".nfs0001", "x.tmp", "00000000000000000000.bak", "99")


class Content(NamedTuple):
    """What a file holds: zeros, but for `data`, of which later pieces lie over earlier ones."""

    size: int
    data: tuple[tuple[int, bytes], ...]

    @classmethod
    def of(cls, content: bytes) -> Content:
        return cls(len(content), ((0, content),))

    @classmethod
    def read(cls, path: Path) -> Content:
        """Read a file, which may be large and have holes."""
        with path.open("rb") as file:
            size, at, data = path.stat().st_size, 0, []
            while at < size:
                try:
                    begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
                for page in range(begin, at, 4096):
                    content = os.pread(file.fileno(), min(4096, at - page), page)
                    if any(content):
                        data.append((page, content))
        return cls(size, tuple(data))

    def write(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            for at, piece in self.data:
                os.pwrite(fd, piece, at)
            os.ftruncate(fd, self.size)
        finally:
            os.close(fd)

    def overwritten(self, at: int, piece: bytes) -> Content:
        """Return it with other bytes at a place; they must lie within it."""
        return self._replace(data=(*self.data, (at, piece)))

    def resized(self, size: int) -> Content:
        cut = tuple((at, piece[: size - at]) for at, piece in self.data if at < size)
        return Content(size, cut)

    def byte(self, at: int) -> int:
        found = 0
        for begin, piece in self.data:
            if begin <= at < begin + len(piece):
                found = piece[at - begin]
        return found

    def place(self, dice: random.Random) -> int:
        """Return a byte of it, mostly one near what is not zero."""
        if self.data and dice.random() < 0.9:
            begin, piece = dice.choice(self.data)
            used = len(piece.rstrip(b"\0")) or 1
            return begin + dice.randrange(used)
        return dice.randrange(self.size)


@dataclass
class Image:
    """The files and directories of a store, by their paths below it."""

    files: dict[str, Content]
    directories: set[str]

    @classmethod
    def read(cls, root: Path) -> Image:
        paths = sorted(root.rglob("*"))
        return cls(
            {str(p.relative_to(root)): Content.read(p) for p in paths if p.is_file()},
            {str(p.relative_to(root)) for p in paths if p.is_dir()},
        )

    def copy(self) -> Image:
        return Image(dict(self.files), set(self.directories))

    def write(self, root: Path) -> None:
        root.mkdir()
        for directory in sorted(self.directories):
            (root / directory).mkdir(exist_ok=True)
        for path, content in self.files.items():
            content.write(root / path)

    def of_kind(self, kind: str) -> list[str]:
        return sorted(path for path in self.files if KINDS[kind].fullmatch(path))

    def remove_directory(self, directory: str) -> None:
        """Remove it with all that is below it."""
        inside = directory + "/"
        self.files = {path: c for path, c in self.files.items() if not path.startswith(inside)}
        self.directories = {
            path for path in self.directories if path != directory and not path.startswith(inside)
        }


class Touched(NamedTuple):
    """Bytes [begin, end) of a file that are not what they were."""

    path: str
    begin: int
    end: int


class Damage(NamedTuple):
    """What was done, in words, and to which bytes."""

    text: str
    touched: tuple[Touched, ...]


def damaged(image: Image, other: Image, dice: random.Random) -> Damage:
    """Damage one place of `image`; foreign files come from `other`."""
    kinds = [kind for kind in KINDS if image.of_kind(kind)]
    weights = [6 if kind == "log" else 4 if kind == "queue" else 2 for kind in kinds]
    kind = dice.choices(kinds, weights)[0]
    if kind == "lock" or (kind == "abort" and dice.random() < 0.5):
        weights = [1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    else:
        weights = [8, 5, 5, 5, 2, 2, 3, 2, 2, 2, 1, 1, 1, 1]
    path = dice.choice(image.of_kind(kind))
    act = dice.choices(_ACTS, weights)[0]
    return act(image, other, kind, path, dice)


Act = Callable[[Image, Image, str, str, random.Random], Damage]


def _whole(image: Image, *paths: str) -> tuple[Touched, ...]:
    """All of these files, however large they were."""
    return tuple(Touched(path, 0, 1 << 40) for path in paths)


def _flip(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    content = image.files[path]
    if not content.size:
        return _remove(image, other, kind, path, dice)
    touched = []
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        at = content.place(dice)
        image.files[path] = content = content.overwritten(
            at, bytes([content.byte(at) ^ 1 << dice.randrange(8)])
        )
        touched.append(Touched(path, at, at + 1))
    return Damage(
        f"flipped bits in bytes {[each.begin for each in touched]} of {path}", (*touched,)
    )


def _overwrite(image: Image, path: str, dice: random.Random, *, junk: bool) -> Damage:
    content = image.files[path]
    at = content.place(dice) if content.size else 0
    length = min(dice.choice((1, 4, 8, 20, 52, 100, 512, 4096, 1 << 30)), content.size - at)
    length = min(length, 1 << 20)
    piece = dice.randbytes(length) if junk else bytes(length)
    image.files[path] = content.overwritten(at, piece)
    what = "junk" if junk else "zeros"
    return Damage(
        f"{what} in bytes {at} to {at + length} of {path}", (Touched(path, at, at + length),)
    )


def _zeros(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    return _overwrite(image, path, dice, junk=False)


def _junk(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    return _overwrite(image, path, dice, junk=True)


def _cut(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    content = image.files[path]
    size = content.place(dice) if content.size and dice.random() < 0.8 else 0
    image.files[path] = content.resized(size)
    return Damage(f"{path} cut to {size} bytes", (Touched(path, size, 1 << 40),))


def _grow(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    content, more = image.files[path], dice.choice((1, 20, 4096))
    grown = content.resized(content.size + more)
    if dice.random() < 0.5:
        grown = grown.overwritten(content.size, dice.randbytes(more))
    image.files[path] = grown
    return Damage(f"{path} has {more} bytes more", ())


def _remove(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    del image.files[path]
    return Damage(f"{path} removed", _whole(image, path))


def _swap(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    twin = dice.choice(image.of_kind(kind))
    if twin == path:
        return _foreign(image, other, kind, path, dice)
    image.files[path], image.files[twin] = image.files[twin], image.files[path]
    return Damage(f"{path} and {twin} swapped", _whole(image, path, twin))


def _foreign(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    # A file of the log that has its place in another log as well is right wherever it is.
    alike = [each for each in other.of_kind(kind) if kind != "log" or each != path]
    if alike and dice.random() < 0.7:
        source = dice.choice(alike)
        image.files[path] = other.files[source]
        # A repair may give a file of the log the place that its records name.
        places = (path, source) if kind == "log" else (path,)
        return Damage(f"{path} is {source} of another store", _whole(image, *places))
    image.files[path] = Content.of(dice.choice((b"{}", b"[]", b"null", b"hello\n", b"\xff" * 5000)))
    return Damage(f"{path} is no file of a store", _whole(image, path))


def _misname(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    target = _wrong_name(path, dice)
    image.files[target] = image.files.pop(path)
    return Damage(f"{path} renamed to {target}", _whole(image, path, target))


def _twin(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    target = _wrong_name(path, dice)
    image.files[target] = image.files[path]
    return Damage(f"{path} also there as {target}", _whole(image, target))


def _wrong_name(path: str, dice: random.Random) -> str:
    directory, _, name = path.rpartition("/")
    names = [name + ".old", "x" + name, name[:-1] or "x"]
    if name.isdecimal():
        step = dice.choice((1, 20, 400, 16 * 1024, 1 << 30, 1 << 50))
        names += [f"{int(name) + step:0{len(name)}d}"] * 4
    name = dice.choice(names)
    return f"{directory}/{name}" if directory else name


def _directory(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    del image.files[path]
    image.directories.add(path)
    return Damage(f"{path} is a directory", _whole(image, path))


def _stranger(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    directory = path.rpartition("/")[0]
    name = dice.choice(STRANGERS)
    target = f"{directory}/{name}" if directory else name
    if dice.random() < 0.3:
        image.directories.add(target)
    else:
        image.files[target] = Content.of(dice.randbytes(dice.choice((0, 10, 5000))))
    return Damage(f"{target} put there", ())


def _vanish(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    directory = path.rpartition("/")[0]
    if not directory:
        return _remove(image, other, kind, path, dice)
    gone = [each for each in image.files if each.startswith(directory + "/")]
    image.remove_directory(directory)
    return Damage(f"{directory} removed", _whole(image, *gone))


def _plain(image: Image, other: Image, kind: str, path: str, dice: random.Random) -> Damage:
    directory = path.rpartition("/")[0]
    damage = _vanish(image, other, kind, path, dice)
    if not directory:
        return damage
    image.files[directory] = Content.of(b"")
    return Damage(f"{directory} is a file", damage.touched)


_ACTS: Final[tuple[Act, ...]] = (
    _flip, _zeros, _junk, _cut, _grow, _swap, _foreign, _misname, _twin, _remove, _directory,
    _stranger, _vanish, _plain,
)  # fmt: skip


def log_ranges(damages: list[Damage], file_size: int) -> Iterator[tuple[int, int]]:
    """Return the physical offsets [begin, end) that were damaged."""
    for damage in damages:
        for path, begin, end in damage.touched:
            name = path.rpartition("/")[2]
            if KINDS["log"].fullmatch(path) and name.isdecimal():
                yield int(name) + begin, int(name) + min(end, file_size)
