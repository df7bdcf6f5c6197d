"""A file is written whole or not at all, reaches the disk, and leaves nothing beside
it.
"""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from laplacebridge import _files
from laplacebridge._files import atomic_write

WRITER = """
import sys, time
from pathlib import Path
from laplacebridge._files import atomic_write
with atomic_write(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half of it")
    print("ready", flush=True)
    time.sleep(60)
"""


def write(path, content=b"new"):
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def writer_of(path):
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    path = tmp_path / "file"
    write(path, b"old")
    process = writer_of(path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert path.read_bytes() == b"old"
    assert len(names(tmp_path)) == 2  # the old file and what was left
    write(path)
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"new"


def test_a_writer_at_work_is_left_alone(tmp_path):
    path = tmp_path / "file"
    process = writer_of(path)
    try:
        write(path)
        assert len(names(tmp_path)) == 2
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_files_of_other_names_are_left_alone(tmp_path):
    others = [".file.txt", ".file.partial", ".files.abcdefgh.partial", "file.abcdefgh.partial"]
    for other in others:
        (tmp_path / other).write_bytes(b"")
    write(tmp_path / "file")
    assert names(tmp_path) == sorted([*others, "file"])


def test_where_files_cannot_be_locked_what_is_a_day_old_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "fcntl", None)
    young, old = tmp_path / ".file.abcdefgh.partial", tmp_path / ".file.12345678.partial"
    for path in (young, old):
        path.write_bytes(b"")
    os.utime(old, (time.time() - 100_000,) * 2)
    write(tmp_path / "file")
    assert names(tmp_path) == [young.name, "file"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    link.symlink_to(target)
    for content in (b"first", b"second"):  # the first time it points to nothing
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert names(tmp_path / "there") == ["file"]


def test_file_and_folder_are_synced(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def note(handle):
        number = handle if isinstance(handle, int) else handle.fileno()
        synced.append(stat.S_IFMT(os.fstat(number).st_mode))
        sync(handle)

    monkeypatch.setattr(os, "fsync", note)
    write(tmp_path / "file")
    assert synced == [stat.S_IFREG, stat.S_IFDIR]


def test_an_error_names_the_wanted_file(tmp_path):
    with pytest.raises(OSError, match="nowhere") as raised:
        write(tmp_path / "nowhere" / "file")
    assert "partial" not in str(raised.value)
