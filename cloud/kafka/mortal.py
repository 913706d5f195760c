"""Clients of Kafka that answer questions, and that are replaced after they failed for a while
(`mortality`).

`Admin` takes the place of confluent_kafka's AdminClient, with the questions that we ask; `Mortal`
keeps any client, a Consumer that is asked for example. Both are for several threads. What a
question raises is raised; nothing is asked twice.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
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
    """Keeps clients that have questions under way, and drops them in a thread of its own.

    The answers come in a thread of librdkafka's. If the last reference to a client ended there,
    librdkafka would have to destroy itself from within, and ends the process instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[object, int]] = {}
        """Number → a client, and how many of its answers are to come."""
        self._count = 0
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Clients whose answers have all come: at most one number for each that is kept."""
        self._thread: threading.Thread | None = None

    def keep(self, client: object, answers: int) -> int:
        """Keep it until so many answers came; the number to let it go by."""
        with self._lock:
            self._count += 1
            if answers:
                self._kept[self._count] = client, answers
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._drop, name="kafka-client-keeper", daemon=True
                )
                self._thread.start()
            return self._count

    def let_go(self, number: int) -> None:
        """One answer came."""
        with self._lock:
            client, answers = self._kept[number]
            self._kept[number] = client, answers - 1
        if answers == 1:
            self._ended.put(number)

    def _drop(self) -> None:
        while True:
            number = self._ended.get()
            with self._lock:
                dropped = self._kept.pop(number)
            del dropped


KEEPER: Final = Keeper()


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
        self._mortality = Mortality()
        self._lock = threading.Lock()
        self._client = make()
        self._number = 0
        """How many clients there were before the one of the moment."""

    def client(self) -> C:
        """To ask the next question; another one after the last has failed for a while."""
        with self._lock:
            if self._mortality.is_over(self._now_s()):
                self._mortality.made_anew()
                self._make_anew()
            return self._client

    def _make_anew(self) -> None:
        try:
            made = self._make()
        except ConfigError as error:  # a file of `kafka.security` is being replaced: the next time
            log.warning("%s: %s", self._what, error, extra={"event": "kafka.client_not_made"})
            return
        threading.Thread(
            target=self._close, args=(self._client,), name="kafka-client-end", daemon=True
        ).start()
        self._client = made
        self._number += 1
        MADE[self._what] = MADE.get(self._what, 0) + 1
        log.warning(
            "%s: Kafka's client got no answer and was replaced",
            self._what,
            extra={"event": "kafka.client_made_anew"},
        )

    @contextlib.contextmanager
    def asked(self) -> Iterator[C]:
        """Ask within; what becomes of it is noted."""
        client, asked_s = self.client(), self._now_s()
        number = self._number
        try:
            yield client
        except KafkaException as error:
            self._note(number, asked_s, error)
            raise
        except Unavailable as error:
            self._note(number, asked_s, error.__cause__)
            raise
        self._note(number, asked_s, None)

    def _note(self, number: int, asked_s: float, error: BaseException | None) -> None:
        with self._lock:
            if number != self._number:
                return  # one that was given up says nothing about its successor
            if isinstance(error, KafkaException) and not is_answer(error.args[0]):
                self._mortality.unanswered(asked_s)
            else:
                self._mortality.answered()

    def later(self, ask: Callable[[C], Mapping[Any, Future[Any]]]) -> Mapping[Any, Future[Any]]:
        """Ask what is answered later; what becomes of it is noted.

        A client that was given up stays until its last question is answered or its time is over:
        librdkafka forgets the questions of a client that nobody refers to, and who waits for one
        would wait for ever.
        """
        client, asked_s = self.client(), self._now_s()
        number = self._number
        futures = ask(client)
        kept = KEEPER.keep(client, len(futures))

        def done(future: Future[Any]) -> None:
            # In a thread of librdkafka, so it may not hold the client itself: see Keeper.
            if not future.cancelled():
                self._note(number, asked_s, future.exception())
            KEEPER.let_go(kept)

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
