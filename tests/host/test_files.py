"""Files are whole or absent, whoever crashes or races."""

import errno
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.host.files import (
    append_fsync,
    create_exclusive,
    is_disk_full,
    read_json,
    remove_tree,
    replace_bytes,
)


def test_replacing_puts_the_new_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_bytes(path, b"old")
    replace_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    replace_bytes(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            replace_bytes(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_is_told_from_other_failures() -> None:
    with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "wb", 0) as f:  # noqa: PTH123
        f.write(b"x")
    assert is_disk_full(caught.value)
    assert is_disk_full(OSError(errno.EDQUOT, "quota"))
    assert is_disk_full(OSError(errno.EROFS, "read-only"))
    assert not is_disk_full(FileNotFoundError(errno.ENOENT, "absent"))


def test_only_one_of_many_creates_a_file_and_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    with ThreadPoolExecutor(16) as pool:
        wins = list(pool.map(lambda i: create_exclusive(path, b"%04d" % i * 1000), range(64)))
    winner = wins.index(True)
    assert wins.count(True) == 1
    assert path.read_bytes() == b"%04d" % winner * 1000
    assert [p.name for p in tmp_path.iterdir()] == ["claim"]


def test_appending_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    append_fsync(path, b"a")
    append_fsync(path, b"b" * 100_000)
    assert path.read_bytes() == b"a" + b"b" * 100_000


def test_broken_json_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b'{"a": ')
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON"):
        read_json(path)
    replace_bytes(path, b'{"a": 1}')
    assert read_json(path) == {"a": 1}


def test_a_folder_that_several_remove_at_once_is_gone_and_nobody_fails(tmp_path: Path):
    for round_ in range(10):
        root = tmp_path / str(round_)
        for i in range(40):
            (root / f"a{i}" / "b" / "c").mkdir(parents=True)
            (root / f"a{i}" / "file").write_text("x")
        (root / "a0").chmod(0o500)
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(remove_tree, root) for _ in range(4)]:
                done.result()
        assert not root.exists()
