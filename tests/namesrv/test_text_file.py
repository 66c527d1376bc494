from pathlib import Path

from namesrv.text_file import TextFile


def test_each_text_becomes_the_backup_of_the_next(tmp_path: Path) -> None:
    file = TextFile(tmp_path / "a" / "b" / "some.conf")
    assert file.read() is None
    assert file.read_backup() is None
    file.replace("one")
    assert (file.read(), file.read_backup()) == ("one", None)
    file.replace("två\n")
    assert (file.read(), file.read_backup()) == ("två\n", "one")
    file.replace("three")
    assert (file.read(), file.read_backup()) == ("three", "två\n")
    assert sorted(p.name for p in file.path.parent.iterdir()) == ["some.conf", "some.conf.bak"]
    assert file.path.parent.joinpath("some.conf.bak").read_bytes() == "två\n".encode()
