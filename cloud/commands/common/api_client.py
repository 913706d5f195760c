"""The operations API for commands: address, key, requests, and the options that say them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypeVar, cast

import click

from edgewake.protocol.printable import printable

if TYPE_CHECKING:
    import httpx

OPS_URL: Final = "http://127.0.0.1:8702"
"""Where `edgewake up` serves the operations API without --port-base."""
REQUEST_TIMEOUT_S: Final = 15.0
PAGE_SIZE: Final = 500
FOREIGN_CHARS_MAX: Final = 200
"""The most characters that are shown of an answer that is not ours."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class OpsApi:
    """Where the operations API is, and its key; and how its answers are to be shown."""

    url: str
    key: str
    as_json: bool

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: object = None,
        about: str = "",
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> httpx.Response:
        """Ask; a refusal ends the command with its reason, each line of it after `about`."""
        response = self._answer(method, path, params, body, timeout_s)
        if response.status_code == 401:
            fail(
                "the key is not accepted. `edgewake up` keeps one in data/secrets/ops.key; set "
                "EDGEWAKE_OPS_KEY, --key or --key-file."
            )
        if response.is_error:
            fail("\n".join(about + line for line in _reason(response).splitlines()))
        return response

    def is_ready(self) -> bool:
        """Has it read its tables?"""
        return self._answer("GET", "/readyz", None, None).status_code == 200

    def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: object,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> httpx.Response:
        import httpx

        headers, url = {"Authorization": f"Bearer {self.key}"}, self.url.rstrip("/") + path
        # Without TLS nobody is to be verified, and to read the certificates of all authorities
        # takes longer than to ask.
        verify = not url.startswith("http://")
        try:
            return httpx.request(
                method,
                url,
                params=params,
                json=body,
                headers=headers,
                timeout=timeout_s,
                verify=verify,
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            fail(
                f"the operations API at {self.url} does not answer: {error}. Is `edgewake up` "
                "running? Set --ops to its address."
            )

    def items(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        after: str | None = None
        while True:
            page = self.ask(
                "GET",
                path,
                params={
                    "limit": PAGE_SIZE,
                    **(params or {}),
                    **({"after": after} if after else {}),
                },
            ).json()
            yield from page["items"]
            if page["next"] in (None, after):
                return
            if not page["items"]:
                raise ValueError(f"the list of {path} does not end")
            after = page["next"]


def _reason(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return f"{problem['detail']} ({response.status_code} {problem['title']})"
    except (ValueError, KeyError, TypeError):
        return f"{response.request.url} answered {response.status_code}: {response.text[:200]}"


def fail(text: str) -> NoReturn:
    """End the command with a sentence and code 1."""
    raise click.ClickException(printable(text, keep="\n"))


@contextmanager
def _as_foreign(urls: Sequence[str]) -> Iterator[None]:
    """Report an unexpected answer of another program, or of another version of ours, as its fault.

    The first of these addresses is named.
    """
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if not urls:
            raise
        what = f"{type(error).__name__}: {error}"[:FOREIGN_CHARS_MAX]
        text = (
            f"{urls[0]} answers otherwise than the operations API of this version ({what}). Set "
            "--ops to its address."
        )
        raise click.ClickException(printable(text)) from error


@dataclass(frozen=True, slots=True)
class Given:
    """What the options say; None: nothing."""

    url: str | None = None
    key: str | None = None
    key_file: Path | None = None
    as_json: bool | None = None

    def unless(self, later: Given) -> Given:
        """With what was said later in its place.

        A key and a file of keys say the same, so one takes the place of the other.
        """
        says_key = later.key is not None or later.key_file is not None
        return Given(
            url=self.url if later.url is None else later.url,
            key=later.key if says_key else self.key,
            key_file=later.key_file if says_key else self.key_file,
            as_json=self.as_json if later.as_json is None else later.as_json,
        )


MakeApi: TypeAlias = Callable[..., OpsApi]


def shows(command: F) -> F:
    """Let a command of a group that has `api_options` take these options, too.

    They override those that stand before it. The command gets an OpsApi as its first argument.
    """

    @functools.wraps(command)
    def shown(
        make_api: MakeApi,
        *arguments: Any,
        url: str | None,
        key: str | None,
        key_file: Path | None,
        as_json: bool | None,
        **options: Any,
    ) -> Any:
        api = make_api(url=url, key=key, key_file=key_file, as_json=as_json)
        with _as_foreign([api.url]):
            return command(api, *arguments, **options)

    # click types what it wraps too narrowly for a command whose first argument is made here.
    return cast(F, _with_options(click.pass_obj(cast(Any, shown)), from_environment=False))


def api_options(command: F) -> F:
    """The options --ops, --key, --key-file and --json/--table.

    The command gets an argument `make_api`, which gives an OpsApi.
    """

    @functools.wraps(command)
    def with_api(
        *arguments: Any,
        url: str | None,
        key: str | None,
        key_file: Path | None,
        as_json: bool | None,
        **options: Any,
    ) -> Any:
        urls: list[str] = []
        before = Given(url, key, key_file, as_json)

        def make_api(**later: Any) -> OpsApi:
            given = before.unless(Given(**later))
            api = connect(given.url, given.key, given.key_file, given.as_json)
            urls.append(api.url)
            return api

        with _as_foreign(urls):
            return command(*arguments, make_api=make_api, **options)

    return cast(F, _with_options(with_api, from_environment=True))


def _with_options(command: Any, *, from_environment: bool) -> Any:
    """`from_environment`: may environment variables set the options?

    They must not override options that stand before a command of a group.
    """
    for option in (
        click.option(
            "--json/--table",
            "as_json",
            default=None,
            help="Default: a table on a terminal, JSON when piped.",
        ),
        click.option(
            "--key-file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File of keys; default: a running `edgewake up`'s.",
        ),
        click.option(
            "--key",
            envvar="EDGEWAKE_OPS_KEY" if from_environment else None,
            help="A key of the operations API. [env: EDGEWAKE_OPS_KEY]",
        ),
        click.option(
            "--ops",
            "url",
            envvar="EDGEWAKE_OPS_URL" if from_environment else None,
            help=f"Address of the operations API; default: a running one's, or {OPS_URL}.",
        ),
    ):
        command = option(command)
    return command


def connect(
    url: str | None, key: str | None, key_file: Path | None, as_json: bool | None
) -> OpsApi:
    """Find address and key where they are not given. Raises ConfigError."""
    import sys

    from edgewake.protocol import installation
    from edgewake.protocol.errors import ConfigError

    running = installation.find()
    file = key_file or (Path(running.ops_key_file) if running.ops_key_file else None)
    if not key and file is not None:
        key = installation.key_of(file)
    if not key:
        where = f"{installation.DATA_VARIABLE} to the data folder of a running `edgewake up`"
        raise ConfigError(
            f"no key: run this where `edgewake up` runs, or set {where}, or EDGEWAKE_OPS_KEY, "
            "--key or --key-file"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError("the key holds characters that no key has: expected ASCII")
    return OpsApi(
        url or running.ops or OPS_URL, key, not sys.stdout.isatty() if as_json is None else as_json
    )
