"""What certificates.sh does to files that are there already."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

from tests.deploy.production import certificates


def made(folder: Path, *arguments: str, **environ: str) -> None:
    done = certificates(folder, *arguments, **environ)
    assert done.returncode == 0, done.stderr


def test_a_certificate_of_another_authority_stays_though_it_ends_soon_and_one_of_ours_is_renewed(
    tmp_path: Path,
) -> None:
    made(tmp_path, DAYS="5")
    front, broker = tmp_path / "front" / "server.crt", tmp_path / "broker" / "server.crt"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "5",
        "-subj",
        "/CN=Public",
    ]
    subprocess.run(
        [*words, "-keyout", front.with_suffix(".key"), "-out", front],
        check=True,
        capture_output=True,
    )
    before = (
        front.read_bytes(),
        broker.read_bytes(),
        (tmp_path / "kafka" / "kafka-1.pem").read_bytes(),
    )
    made(tmp_path)
    after = (
        front.read_bytes(),
        broker.read_bytes(),
        (tmp_path / "kafka" / "kafka-1.pem").read_bytes(),
    )
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False]


def test_passwords_stay_and_a_revoked_bridge_has_none(tmp_path: Path) -> None:
    made(tmp_path, "--bridge", "bridge-1", "--bridge", "bridge-2")
    users, password = tmp_path / "kafka" / "users.jaas", tmp_path / "kafka" / "bridge-2.password"
    before = password.read_text().strip()
    assert f'user_bridge-2="{before}"' in users.read_text()
    made(tmp_path, "--revoke", "bridge-1")
    assert (password.read_text().strip(), "bridge-1" in users.read_text()) == (before, False)


def test_nobody_else_may_enter_the_folder_whose_files_kafka_s_own_user_reads(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    assert stat.S_IMODE((tmp_path / "kafka").stat().st_mode) == 0o700
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kafka").iterdir()
    }
    assert {name for name, mode in modes.items() if mode == 0o644} >= {
        "users.jaas",
        "kafka-1.pem",
        "kafka-ca.crt",
    }
    assert {mode for name, mode in modes.items() if name.endswith(".password")} == {0o600}
