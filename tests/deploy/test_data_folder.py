"""The data folder and the keys in it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgewake.deploy import data_folder, secret_files
from edgewake.protocol.errors import LocalError


def test_a_new_folder_is_its_owner_s_and_has_a_version(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with data_folder.opened(tmp_path / "data"):
            assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert (tmp_path / "data" / "version").read_text() == f"{data_folder.VERSION}\n"


def test_a_folder_that_somebody_made_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with data_folder.opened(tmp_path / "data"):
        pass
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_the_next_start_goes_on_from_a_folder_of_this_version(tmp_path: Path) -> None:
    for _ in range(2):
        with data_folder.opened(tmp_path):
            (tmp_path / "kafka").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    ("version", "whose"),
    [
        (data_folder.VERSION + 1, "a newer Edgewake"),
        (data_folder.VERSION - 1, "an older Edgewake"),
        ("", "an older Edgewake"),
    ],
)
def test_a_folder_of_another_version_is_refused_and_left_as_it_is(
    tmp_path: Path, version: object, whose: str
) -> None:
    (tmp_path / "version").write_text(f"{version}\n")
    refused = pytest.raises(
        LocalError,
        match=rf"^{tmp_path} has version {version} and was written by {whose}; this one reads "
        r"version \d+: .* --data$",
    )
    with refused, data_folder.opened(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["version"]


def test_a_folder_from_before_there_was_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    with (
        pytest.raises(LocalError, match="written by an Edgewake that kept no version in it"),
        data_folder.opened(tmp_path),
    ):
        pass


def test_a_folder_of_somebody_else_keeps_its_mode_and_its_files(tmp_path: Path) -> None:
    """`--data /home/me` must not close a home to its other users, nor put Kafka between the
    letters.
    """
    (tmp_path / "letters").mkdir()
    tmp_path.chmod(0o755)
    with (
        pytest.raises(LocalError, match="holds other files and no data of Edgewake"),
        data_folder.opened(tmp_path),
    ):
        pass
    assert (tmp_path.stat().st_mode & 0o777, [path.name for path in tmp_path.iterdir()]) == (
        0o755,
        ["letters"],
    )


def test_too_little_space_is_told_with_figures(tmp_path: Path) -> None:
    refused = pytest.raises(
        LocalError, match=r"has 300 MiB free, 1024 MiB are needed; make room or .* --data$"
    )
    with refused, data_folder.opened(tmp_path / "data", free=lambda _path: 300 << 20):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(
        LocalError,
        match=r"file/data cannot be written: Not a directory; choose another folder with --data",
    )
    with refused, data_folder.opened(tmp_path / "file" / "data"):
        pass


def test_a_folder_has_one_instance_at_a_time(tmp_path: Path) -> None:
    already = pytest.raises(LocalError, match=rf"already runs on {tmp_path} \(pid {os.getpid()}\)")
    with data_folder.opened(tmp_path), already, data_folder.opened(tmp_path):
        pass
    with data_folder.opened(tmp_path):
        pass


def test_secrets_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "cursor.key"
    first = secret_files.ensure(path, secret_files.cursor_key())
    assert secret_files.ensure(path, secret_files.cursor_key()) == first == path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    kid, key = first.split()
    assert (kid, len(bytes.fromhex(key))) == ("1", 32)


DIES = """
import os, sys
from pathlib import Path
from edgewake.deploy import secret_files
os.fsync = lambda _: os.kill(os.getpid(), 9)
secret_files.ensure(Path(sys.argv[1]), "1 aa")
"""


def test_a_process_that_dies_while_it_writes_a_key_leaves_none(tmp_path: Path) -> None:
    """Before, the name stood there with nothing in it, and every later start went on with an empty
    key.
    """
    path = tmp_path / "cursor.key"
    died = subprocess.run([sys.executable, "-c", DIES, str(path)], check=False)
    assert (died.returncode, path.exists()) == (-9, False)
    assert secret_files.ensure(path, "1 bb\n") == path.read_text() == "1 bb\n"


def test_two_that_make_a_key_at_once_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cursor.key"
    code = (
        "from pathlib import Path; from edgewake.deploy import secret_files as s; "
        f"print(s.ensure(Path({str(path)!r}), s.cursor_key()))"
    )
    with ThreadPoolExecutor(4) as pool:
        texts = set(
            pool.map(lambda _: subprocess.check_output([sys.executable, "-c", code]), range(4))
        )
    assert len(texts) == 1
