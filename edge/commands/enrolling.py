"""Enrols a device by a claim code. Blocking.

It asks the operations API for a password, or for a certificate with a key that it makes itself.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.errors import LocalError
from edgewake.protocol.printable import printable

ANSWER_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 65_536
"""Bytes of an answer that are read; one with two certificates has some 2,000."""
OPENSSL_S: Final = 60.0
"""Seconds for a key and its request: a small device that just started may wait for randomness."""


class Enrolled(NamedTuple):
    """What it was given: a password, or a certificate."""

    password: str
    certificate: str
    authority: str
    """The authority that signed the broker's certificate, PEM; empty: the broker does not
    encrypt."""
    broker: str
    """host:port; empty where the server does not say it."""


def enrol(
    server: str, code: str, device: str, *, fingerprint: str = "", request: str = ""
) -> Enrolled:
    """`fingerprint`: SHA-256 of the server's own authority; `request`: a signing request, PEM.

    Without a fingerprint an https server must show a certificate that this machine trusts. Raises
    LocalError with the server's reason.
    """
    if not server.startswith(("http://", "https://")):
        raise LocalError(f"server {server!r}: expected https://HOST:PORT")
    base = server.rstrip("/")
    trusted = authority_of(base, fingerprint) if fingerprint else ""
    asked = {"code": code, "device": device} | ({"request": request} if request else {})
    found = _ask(base, "/v1/enrol", orjson.dumps(asked), _context(trusted))
    try:
        said = orjson.loads(found)
        one, broker = said["items"][0], said["broker"]
        return Enrolled(
            one.get("password") or "",
            one.get("certificate") or "",
            said.get("authority") or "",
            "" if broker is None else f"{broker['host']}:{int(broker['port'])}",
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise LocalError(
            f"{server}: the answer is not one of the operations API; is this its address?"
        ) from error


def authority_of(server: str, fingerprint: str) -> str:
    """The server's authority, PEM: the one that has this fingerprint, whoever answers.

    Raises LocalError.
    """
    wanted = fingerprint.replace(":", "").replace(" ", "").lower()
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE  # what comes is believed by its fingerprint alone
    try:
        pem = _ask(server, "/v1/authority", None, anybody).decode("ascii")
        found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    except ValueError as error:
        raise LocalError(
            f"{server}: the answer is not a PEM certificate; is this the operations API?"
        ) from error
    if not hmac.compare_digest(found, wanted):
        raise LocalError(
            f"{server} shows the authority {found}, expected {wanted}: it is another server, or "
            "the fingerprint is another one's"
        )
    return pem


def make_request(key_file: Path, device: str) -> str:
    """A signing request (PEM) with the key in `key_file`, which is made where it is not there.

    The private key never leaves this machine. Raises LocalError.
    """
    program = shutil.which("openssl")
    if program is None:
        raise LocalError("a certificate needs the program openssl here: apt-get install openssl")
    if not key_file.exists():
        new = key_file.with_name(f"{key_file.name}.new")
        _openssl(
            program, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out",
            str(new),
        )  # fmt: skip
        try:
            new.chmod(0o600)
            new.replace(key_file)
        except OSError as error:
            raise LocalError(f"{key_file}: {error.strerror}") from error
    return _openssl(program, "req", "-new", "-key", str(key_file), "-subj", f"/CN={device}")


def _openssl(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=OPENSSL_S,
            check=False,
            umask=0o077,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"{program} {arguments[0]}: {error}") from error
    if done.returncode:
        raise LocalError(f"{program} {arguments[0]}: {printable(done.stderr.strip()[-300:])}")
    return done.stdout


def _context(authority: str) -> ssl.SSLContext:
    if not authority:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=authority)
    except ssl.SSLError as error:
        raise LocalError(f"the server's authority cannot be used: {error}") from error


def _ask(server: str, path: str, body: bytes | None, context: ssl.SSLContext) -> bytes:
    request = urllib.request.Request(  # noqa: S310  (http or https, as looked at above)
        server + path, data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=context) as answer:  # noqa: S310
            return bytes(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise LocalError(f"{server}: {_reason(error)}") from error
    except OSError as error:
        raise LocalError(f"{server} does not answer: {_why(error)}") from error


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"{reason.verify_message}; with --fingerprint (`edgewake devices claim` says it) an "
            "installation's own authority is believed"
        )
    return str(error)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        said: Any = orjson.loads(error.read(ANSWER_BYTES_MAX))
        return printable(str(said["detail"]))
    except (OSError, ValueError, KeyError, TypeError):
        return f"answered {error.code}"
