"""The state's table (java/edgewake/Table.java), its files and the store that Spark sees, against a
dictionary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from tests.examples import examples

PLENTY: Final = 1 << 30
"""Bytes in memory, more than any test needs."""
Rows = dict[bytes, bytes]


@cache
def row_class(session: SparkSession) -> Any:
    """Each part of its name is a question to the JVM."""
    jvm: Any = session.sparkContext._jvm
    return jvm.org.apache.spark.sql.catalyst.expressions.UnsafeRow


def row(session: SparkSession, content: bytes) -> Any:
    """Any whole words are a row to the table."""
    made = row_class(session)(1)
    made.pointTo(content, len(content))
    return made


def settings_of(session: SparkSession) -> Any:
    """Hadoop's, as a query gets them."""
    return session._jsparkSession.sessionState().newHadoopConf()


class Kept:
    """A table with files in a folder."""

    def __init__(self, session: SparkSession, folder: Path, most: int = PLENTY) -> None:
        self.session, self.folder = session, folder
        self.jvm: Any = session.sparkContext._jvm
        scratch = folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        self.table = self.jvm.edgewake.Table(most, self.jvm.java.io.File(str(scratch)))
        self.files = self._files()
        self.version = 0

    def _files(self) -> Any:
        path = self.jvm.org.apache.hadoop.fs.Path(str(self.folder / "state"))
        made = self.jvm.edgewake.TableFiles(path, settings_of(self.session))
        made.claim()
        return made

    def put(self, key: bytes, value: bytes) -> None:
        self.table.put(row(self.session, key), row(self.session, value))

    def remove(self, key: bytes) -> None:
        self.table.remove(row(self.session, key))

    def get(self, key: bytes) -> bytes | None:
        found = self.table.get(row(self.session, key))
        return None if found is None else bytes(found)

    def rows(self) -> Rows:
        found: Rows = {}
        walk = self.table.walk()
        while walk.next():
            key = bytes(walk.key(bytes(1)))[: walk.keyLength()]
            assert key not in found
            found[key] = bytes(walk.value())
        assert self.table.size() == len(found)
        return found

    def commit(self) -> None:
        self.version += 1
        self.files.save(self.table, self.version)
        self.table.committed()

    def load(self, version: int) -> None:
        """As another process does."""
        self.files = self._files()
        self.files.load(self.table, version)
        self.version = version

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "state").iterdir())


def refusal(attempt: Callable[[], None]) -> str | None:
    """What Java says, None where it does as it is told."""
    try:
        attempt()
    except Py4JJavaError as error:
        return str(error.java_exception)
    return None


@contextmanager
def kept(session: SparkSession, folder: Path, most: int = PLENTY) -> Iterator[Kept]:
    one = Kept(session, folder, most)
    try:
        yield one
    finally:
        one.table.close()
        assert one.table.reserved() == 0, "all memory is given back"


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


KEYS = st.binary(max_size=40).map(lambda text: text + bytes(-len(text) % 8))
SHORT = st.lists(st.sampled_from([0, 1, 2**63, 7 << 32]), max_size=30).map(
    lambda numbers: words(*numbers)
)
LONG = st.integers(1, 9_000).map(lambda count: words(*range(count)))
VALUES = st.one_of(SHORT, SHORT, SHORT, LONG)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 11), VALUES),
        st.tuples(st.just("put"), st.integers(0, 11), VALUES),
        st.tuples(st.just("remove"), st.integers(0, 11)),
        st.tuples(st.just("commit")),
        st.tuples(st.just("load"), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(60))
@given(
    keys=st.lists(KEYS, min_size=12, max_size=12, unique=True),
    steps=STEPS,
    most=st.sampled_from([PLENTY, 0, 100_000]),
)
def test_it_is_a_dictionary_whose_versions_come_back(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[bytes],
    steps: list[tuple[Any, ...]],
    most: int,
) -> None:
    versions: list[Rows] = [{}]
    with kept(spark, tmp_path_factory.mktemp("state"), most) as one:
        now: Rows = {}
        for what, *arguments in steps:
            if what == "put":
                at, value = arguments
                now[keys[at]] = value
                one.put(keys[at], value)
            elif what == "remove":
                now.pop(keys[arguments[0]], None)
                one.remove(keys[arguments[0]])
            elif what == "commit":
                one.commit()
                versions.append(dict(now))
            else:
                back = max(0, len(versions) - 1 - arguments[0])
                del versions[back + 1 :]
                one.load(back)
                now = dict(versions[back])
            if what in ("put", "remove"):
                assert one.get(keys[arguments[0]]) == now.get(keys[arguments[0]])
        assert one.rows() == now
        assert {key: one.get(key) for key in keys} == {key: now.get(key) for key in keys}
        one.load(len(versions) - 1)
        assert one.rows() == versions[-1]


def test_what_is_more_than_its_memory_lies_in_a_file_that_is_gone_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kept(spark, tmp_path, most=200_000) as one:
        for i in range(60):
            one.put(words(i), words(*range(i, i + 1000)))
        assert one.table.reserved() > 400_000, "files were mapped"
        assert list((tmp_path / "scratch").iterdir()) == []
        assert one.rows() == {words(i): words(*range(i, i + 1000)) for i in range(60)}


def test_where_no_file_can_be_made_it_says_so_and_has_all_that_it_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kept(spark, tmp_path, most=200_000) as one:
        one.put(words(1), words(2))
        (tmp_path / "scratch").rmdir()
        with pytest.raises(
            Py4JJavaError,
            match=r"UncheckedIOException: no file in .*scratch for \d+ bytes of the state: .*No "
            r"such file",
        ):
            one.put(words(3), words(*range(1, 30_000)))
        one.put(words(4), words(5))
        assert one.rows() == {words(1): words(2), words(4): words(5)}


def test_a_small_table_takes_little_of_a_file_and_is_not_made_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where other lanes have all the memory that there is."""
    with kept(spark, tmp_path, most=0) as one:
        one.put(words(1), words(2))
        one.commit()
        assert one.table.reserved() < 100_000


def test_where_no_file_can_be_had_for_its_index_it_has_all_that_it_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kept(spark, tmp_path, most=120_000) as one:
        (tmp_path / "scratch").rmdir()
        put = 0
        while (why := refusal(lambda: one.put(words(put), words(put)))) is None:  # noqa: B023  (called at once)
            put += 1
        assert "no file in" in why
        assert one.rows() == {words(i): words(i) for i in range(put)}
        assert all(one.get(words(i)) == words(i) for i in (0, 1, put // 2, put - 1))


def test_a_walk_may_begin_before_the_first_row(spark: SparkSession, tmp_path: Path) -> None:
    with kept(spark, tmp_path) as one:
        walk = one.table.walk()
        one.put(words(1), words(2))
        assert walk.next()
        assert bytes(walk.value()) == words(2)
        assert not walk.next()


def test_a_task_that_was_given_up_cannot_write_once_its_query_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its state is another object then, of the same folder."""
    with kept(spark, tmp_path / "one") as old:
        old.put(words(1), words(2))
        old.commit()
        old.put(words(1), words(3))
        new = old._files()
        with pytest.raises(Py4JJavaError, match="another task has the state now"):
            old.commit()
        new.load(old.table, 1)
        assert old.rows() == {words(1): words(2)}
        new.save(old.table, 2)
        assert old.names() == ["1.snapshot", "2.changelog"]


def test_a_table_that_shrank_gives_memory_back(spark: SparkSession, tmp_path: Path) -> None:
    with kept(spark, tmp_path) as one:
        large = words(*range(1, 8_001))
        for i in range(300):
            one.put(words(i), large)
        before = one.table.reserved()
        for i in range(2, 300):
            one.remove(words(i))
        one.commit()
        assert one.table.reserved() < before / 10
        assert one.rows() == {words(0): large, words(1): large}


def test_many_rows_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """Windows open and close for ever: the index is cleaned, and places are used again."""
    with kept(spark, tmp_path) as one:
        for i in range(900):
            one.put(words(i), words(i, i))
            if i >= 50:
                one.remove(words(i - 50))
        assert one.rows() == {words(i): words(i, i) for i in range(850, 900)}
        assert one.table.reserved() < 200_000


def test_rows_may_be_removed_while_all_are_walked_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kept(spark, tmp_path) as one:
        for i in range(100):
            one.put(words(i), words(1))
        walk, seen = one.table.walk(), []
        while walk.next():
            key = bytes(walk.key(bytes(64)))[: walk.keyLength()]
            seen.append(key)
            if int.from_bytes(key, "little") % 2:
                one.remove(key)
        assert sorted(seen) == sorted(words(i) for i in range(100))
        assert one.rows() == {words(i): words(1) for i in range(0, 100, 2)}


def test_each_version_is_the_smaller_of_all_rows_and_what_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with kept(spark, tmp_path) as one:
        for i in range(100):
            one.put(words(i), words(i))
        one.commit()
        for _ in range(3):
            one.put(words(7), words(8))
            one.commit()
        for i in range(100):
            one.put(words(i), words(9))
        one.commit()
        assert one.names() == [
            "1.snapshot",
            "2.changelog",
            "3.changelog",
            "4.changelog",
            "5.snapshot",
        ]
        one.files.removeOld(5, 1)
        assert one.names() == [
            "1.snapshot",
            "2.changelog",
            "3.changelog",
            "4.changelog",
            "5.snapshot",
        ], "4 needs all of them"
        one.files.removeOld(9, 0)
        assert one.names() == ["5.snapshot"]
        one.load(5)
        assert one.rows() == {words(i): words(9) for i in range(100)}


def test_a_restart_reads_a_hundred_small_files_at_most(spark: SparkSession, tmp_path: Path) -> None:
    with kept(spark, tmp_path) as one:
        for i in range(100):
            one.put(words(i), words(i))
        for _ in range(103):
            one.commit()
        assert [name for name in one.names() if name.endswith("snapshot")] == [
            "1.snapshot",
            "102.snapshot",
        ]


def test_a_version_that_is_planned_anew_has_one_file(spark: SparkSession, tmp_path: Path) -> None:
    """Of a snapshot and a changelog of the same number a reader would take the snapshot, which may
    be the older one.
    """
    with kept(spark, tmp_path) as one:
        for i in range(100):
            one.put(words(i), words(i))
        one.commit()
        for i in range(100):
            one.put(words(i), words(1))
        one.commit()
        assert one.names() == ["1.snapshot", "2.snapshot"]
        one.load(1)
        one.put(words(0), words(77))
        one.commit()
        assert one.names() == ["1.snapshot", "2.changelog"]
        one.load(2)
        assert one.rows() == {words(i): words(i) for i in range(1, 100)} | {words(0): words(77)}


@pytest.mark.parametrize("kind", ["snapshot", "changelog"])
@pytest.mark.parametrize(
    "damage",
    [
        *(pytest.param(one, marks=pytest.mark.long) for one in ("missing", "empty", "cut")),
        "flipped",
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named_and_never_read_wrong(
    spark: SparkSession, tmp_path: Path, kind: str, damage: str
) -> None:
    with kept(spark, tmp_path) as one:
        for i in range(60):
            one.put(words(i), words(i, i * i))
        one.commit()
        one.put(words(1), words(5))
        one.commit()
        path = tmp_path / "state" / ("1.snapshot" if kind == "snapshot" else "2.changelog")
        whole = path.read_bytes()
        truth = {words(i): words(i, i * i) for i in range(60)} | {words(1): words(5)}
        one.load(2)
        assert one.rows() == truth, "the control"
        refused, read = 0, 0
        for content in _damaged(whole, damage):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            why = refusal(lambda: one.load(2))
            if why is None:  # what is damaged is behind its last row
                read += 1
                assert one.rows() == truth
            else:
                refused += 1
                assert re.match(rf"java\.io\.\w+: .*/{path.stem}\.(snapshot|changelog)", why), why
            path.write_bytes(whole)
        assert refused >= 1
        assert read <= (refused / 10 if damage == "flipped" else 0)


def _damaged(whole: bytes, damage: str) -> Iterator[bytes | None]:
    if damage == "missing":
        yield None
    elif damage == "empty":
        yield b""
    elif damage == "cut":
        yield from (whole[:length] for length in range(1, len(whole), max(1, len(whole) // 25)))
    else:
        for at in range(0, len(whole), max(1, len(whole) // 25)):
            yield whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]


# -- The store that Spark sees


@contextmanager
def stores(session: SparkSession, folder: Path) -> Iterator[Any]:
    jvm: Any = session.sparkContext._jvm
    state = jvm.org.apache.spark.sql.execution.streaming.state
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL("n bigint")
    conf = session._jsparkSession.sessionState().conf()
    provider = jvm.edgewake.TableStores()
    provider.init(
        state.StateStoreId(str(folder), 0, 0, "default"), schema, schema, None, False,
        state.StateStoreConf(conf,
            getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()),
        settings_of(session), False, jvm.scala.Option.empty(),
    )  # fmt: skip
    try:
        yield provider
    finally:
        provider.close()


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[int], Any]]:
    """Opens a version of a state to write it."""
    jvm: Any = spark.sparkContext._jvm
    with stores(spark, tmp_path) as provider:
        yield lambda version: provider.getStore(version, jvm.scala.Option.empty(), False, False)


def test_what_a_task_gave_up_is_not_seen_by_the_next_one(
    spark: SparkSession, opened: Callable[[int], Any]
) -> None:
    first = opened(0)
    first.put(row(spark, words(0, 1)), row(spark, words(0, 2)), "default")
    first.abort()
    second = opened(0)
    assert second.get(row(spark, words(0, 1)), "default") is None
    second.put(row(spark, words(0, 1)), row(spark, words(0, 3)), "default")
    # It is not given up, only forgotten: its task may still run.
    third = opened(0)
    assert third.get(row(spark, words(0, 1)), "default") is None


def test_a_task_that_still_runs_cannot_touch_the_state_of_the_next_one(
    spark: SparkSession, opened: Callable[[int], Any]
) -> None:
    first = opened(0)
    second = opened(0)
    second.put(row(spark, words(0, 1)), row(spark, words(0, 2)), "default")
    for touch in (
        lambda: first.get(row(spark, words(0, 1)), "default"),
        lambda: first.put(row(spark, words(0, 1)), row(spark, words(0, 9)), "default"),
        lambda: first.remove(row(spark, words(0, 1)), "default"),
        lambda: first.iterator("default"),
        first.commit,
    ):
        with pytest.raises(Py4JError, match="another task has the state now"):
            touch()
    first.abort()
    assert bytes(second.get(row(spark, words(0, 1)), "default").getBytes()) == words(0, 2)


def test_who_reads_a_state_takes_it_from_nobody(
    spark: SparkSession, tmp_path: Path, opened: Callable[[int], Any]
) -> None:
    """As Spark's source `statestore` does while the query runs."""
    nothing = spark.sparkContext._jvm.scala.Option.empty()
    key, value = row(spark, words(0, 1)), row(spark, words(0, 2))
    first = opened(0)
    first.put(key, value, "default")
    assert first.commit() == 1
    second = opened(1)
    second.put(key, row(spark, words(0, 3)), "default")
    with stores(spark, tmp_path) as reader:
        assert bytes(reader.getReadStore(1, nothing).get(key, "default").getBytes()) == words(0, 2)
    assert second.commit() == 2
    assert bytes(opened(2).get(key, "default").getBytes()) == words(0, 3)


def test_a_damaged_file_is_said_as_a_state_that_cannot_be_loaded(
    spark: SparkSession, tmp_path: Path, opened: Callable[[int], Any]
) -> None:
    folder = tmp_path / "0" / "0"
    (folder / "3.snapshot").write_bytes(b"no LZ4")
    with pytest.raises(Py4JJavaError, match=r"\[CANNOT_LOAD_STATE_STORE\].*version 3.*3\.snapshot"):
        opened(3)
