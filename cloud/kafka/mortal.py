"""Clients of Kafka that answer questions and are replaced after failing a while (`mortality`).

`Admin` takes the place of confluent_kafka's AdminClient, with the questions that we ask; `Mortal`
keeps any client, a Consumer that is asked for example. Both are for several threads. What a
question raises is raised; nothing is asked twice.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource

from edgewake.cloud.kafka.mortality import Mortality, is_answer
from edgewake.protocol.errors import ConfigError, Unavailable

log = logging.getLogger("edgewake.kafka")

C = TypeVar("C")
MADE: Final[dict[str, int]] = {}
"""Clients that were replaced since the process began, by their purpose: for metrics."""


class Keeper:
    """Holds the clients that are used, and drops them in a thread of its own.

    librdkafka ends the process where a client is destroyed in one of its own threads, and there
    answers come. So nothing that an answer reaches may hold a client: it is held here, by number,
    until its owner is gone and its last answer came.
    """

    def __init__(self) -> None:
        self._held: dict[int, object] = {}
        self._numbers = itertools.count()
        self._changes: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        """(client, how many more or fewer need it). Its length is bounded by what is asked: the
        thread does nothing else. `put` may be called from anywhere, also by the collector of
        garbage in the middle of another `put`."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, client: object) -> int:
        """Hold a client for its owner; the number to `let_go` by."""
        number = next(self._numbers)
        self._held[number] = client
        self.need(number, 1)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kafka-client-keeper", daemon=True
                )
                self._thread.start()
        return number

    def need(self, number: int, answers: int) -> None:
        """Expect this many answers."""
        self._changes.put((number, answers))

    def let_go(self, number: int) -> None:
        """One answer came, or the owner is gone."""
        self._changes.put((number, -1))

    def _run(self) -> None:
        needed: dict[int, int] = {}
        while True:
            number, change = self._changes.get()
            needed[number] = needed.get(number, 0) + change
            if not needed[number]:
                del needed[number]
                del self._held[number]


KEEPER: Final = Keeper()


class _Book:
    """What became of the questions to the client of the moment. It does not hold the client."""

    def __init__(self, held: int) -> None:
        self.held = held
        """The number of the client of the moment at the keeper."""
        self.mortality = Mortality()
        self.lock = threading.Lock()

    def note(self, held: int, asked_s: float, error: BaseException | None) -> None:
        """What became of a question to this client that was asked then."""
        with self.lock:
            if held != self.held:
                return  # one that was given up says nothing about its successor
            if isinstance(error, KafkaException) and not is_answer(error.args[0]):
                self.mortality.unanswered(asked_s)
            else:
                self.mortality.answered()

    def close(self) -> None:
        """The owner is gone."""
        KEEPER.let_go(self.held)


class Mortal(Generic[C]):
    """The client of the moment.

    `close` ends one that was given up, in a thread of its own, for it may wait for Kafka.
    """

    def __init__(
        self,
        what: str,
        make: Callable[[], C],
        close: Callable[[C], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what` it is for, for people."""
        self._what = what
        self._make = make
        self._close = close
        self._now_s = now_s
        self._client = make()
        self._book = _Book(KEEPER.hold(self._client))
        weakref.finalize(self, self._book.close).atexit = False

    def client(self) -> C:
        """To ask the next question; another one after the last has failed for a while."""
        return self._asked()[0]

    def _asked(self) -> tuple[C, int]:
        with self._book.lock:
            if self._book.mortality.is_over(self._now_s()):
                self._book.mortality.made_anew()
                self._make_anew()
            return self._client, self._book.held

    def _make_anew(self) -> None:
        try:
            made = self._make()
        except ConfigError as error:  # a file of `kafka.security` is being replaced: the next time
            log.warning("%s: %s", self._what, error, extra={"event": "kafka.client_not_made"})
            return
        threading.Thread(
            target=self._close, args=(self._client,), name="kafka-client-end", daemon=True
        ).start()
        before, self._client = self._book.held, made
        self._book.held = KEEPER.hold(made)
        KEEPER.let_go(before)
        MADE[self._what] = MADE.get(self._what, 0) + 1
        log.warning(
            "%s: Kafka's client got no answer and was replaced",
            self._what,
            extra={"event": "kafka.client_made_anew"},
        )

    @contextlib.contextmanager
    def asked(self) -> Iterator[C]:
        """Ask within; what becomes of it is noted."""
        asked_s = self._now_s()
        client, held = self._asked()
        try:
            yield client
        except KafkaException as error:
            self._book.note(held, asked_s, error)
            raise
        except Unavailable as error:
            self._book.note(held, asked_s, error.__cause__)
            raise
        self._book.note(held, asked_s, None)

    def later(self, ask: Callable[[C], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        """Ask what is answered later; what becomes of it is noted.

        A client that was given up stays until its last question is answered or its time is over:
        librdkafka forgets the questions of a client that nobody refers to, and who waits for one
        would wait for ever.
        """
        asked_s = self._now_s()
        client, held = self._asked()
        futures = ask(client)
        KEEPER.need(held, len(futures))
        book = self._book

        def done(future: Future[Any]) -> None:
            # In a thread of librdkafka, so it holds neither the client nor who holds it.
            if not future.cancelled():
                book.note(held, asked_s, future.exception())
            KEEPER.let_go(held)

        for future in futures.values():
            future.add_done_callback(done)
        return futures

    def end(self) -> None:
        """Close the client of the moment."""
        self._close(self._client)


class Admin:
    """What we ask of an AdminClient; arguments and answers are its own."""

    def __init__(
        self,
        make: Callable[[], AdminClient],
        what: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client: Mortal[AdminClient] = Mortal(what, make, _drop, now_s)

    def list_topics(self, *arguments: Any, **more: Any) -> ClusterMetadata:
        """See AdminClient; blocks.

        An answer without a broker does not count: Kafka has shut itself out, and may know nothing
        of what is new.
        """
        with self._client.asked() as client:
            found = client.list_topics(*arguments, **more)
            if not found.brokers:
                raise KafkaException(
                    KafkaError(
                        KafkaError._TRANSPORT, "Kafka's broker is shut out by its controller"
                    )
                )
            return found

    def describe_topics(self, *arguments: Any, **more: Any) -> Mapping[str, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.describe_topics(*arguments, **more))

    def describe_configs(
        self, *arguments: Any, **more: Any
    ) -> Mapping[ConfigResource, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.describe_configs(*arguments, **more))

    def incremental_alter_configs(
        self, *arguments: Any, **more: Any
    ) -> Mapping[ConfigResource, Future[Any]]:
        """See AdminClient."""
        return self._client.later(
            lambda client: client.incremental_alter_configs(*arguments, **more)
        )

    def list_offsets(self, *arguments: Any, **more: Any) -> Mapping[TopicPartition, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.list_offsets(*arguments, **more))

    def create_topics(self, *arguments: Any, **more: Any) -> Mapping[str, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.create_topics(*arguments, **more))

    def create_partitions(self, *arguments: Any, **more: Any) -> Mapping[str, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.create_partitions(*arguments, **more))

    def delete_topics(self, *arguments: Any, **more: Any) -> Mapping[str, Future[Any]]:
        """See AdminClient."""
        return self._client.later(lambda client: client.delete_topics(*arguments, **more))

    def describe_consumer_groups(self, *arguments: Any, **more: Any) -> Mapping[str, Future[Any]]:
        """See AdminClient."""
        return self._client.later(
            lambda client: client.describe_consumer_groups(*arguments, **more)
        )

    def __getattr__(self, name: str) -> Any:
        """What else an AdminClient has; what becomes of it is not noted."""
        return getattr(self._client.client(), name)


def _drop(_client: AdminClient) -> None:
    """An AdminClient has no end but that nobody refers to it."""
