"""A broker with mutual TLS for the agent's tests and benchmarks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import free_ports, run_mosquitto


def certificates(folder: Path) -> None:
    """An authority (ca), a broker called localhost and a device called bench: NAME.pem and
    NAME.key.
    """
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl is needed"

    def call(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    call(
        "req", "-x509", *key, "-subj", "/CN=bench authority", "-keyout", "ca.key", "-out", "ca.pem"
    )
    for name, subject in (("broker", "localhost"), ("device", "bench")):
        (folder / "san").write_text(f"subjectAltName=DNS:{subject}\n", "utf-8")
        call(
            "req", *key, "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        call(
            *(
                "x509",
                "-req",
                "-in",
                f"{name}.csr",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
            ),
            *("-days", "2", "-extfile", "san", "-out", f"{name}.pem"),
        )
    for path in folder.iterdir():
        path.chmod(0o644)


@contextmanager
def broker_with_mtls(folder: Path) -> Iterator[tuple[int, int]]:
    """Mosquitto with the demo's listener for the peer, and one that wants certificates of the
    authority in `folder`; both ports.
    """
    (tls_port,) = free_ports(1)
    tls = (
        *(f"listener {tls_port} 127.0.0.1", "allow_anonymous true"),
        *(
            f"cafile {folder}/ca.pem",
            f"certfile {folder}/broker.pem",
            f"keyfile {folder}/broker.key",
            "require_certificate true",
        ),
    )
    for parent in (folder, *folder.parents[:2]):  # Mosquitto reads them as another user
        parent.chmod(parent.stat().st_mode | 0o055)
    with run_mosquitto(folder / "broker") as service:
        file = folder / "broker" / "mosquitto.conf"
        file.write_text(
            "\n".join(["per_listener_settings true", file.read_text("utf-8"), *tls, ""]), "utf-8"
        )
        service.process.stop()
        service.start()
        yield service.port, tls_port
