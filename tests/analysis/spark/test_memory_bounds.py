"""Unchecked accesses of our Java classes to memory: in the JVM of the tests each is checked
(Raw.java).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import ArrayIndexOutOfBoundsException
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.spark.java_classes import SOURCES, named

PLENTY: Final = 1 << 30
PLACE: Final = 48
"""Bytes of a place that was asked for with 40: sizes are 16 bytes apart."""
BLOCK: Final = 64
_ACCESS: Final = re.compile(
    r"\bPlatform\.(get|put)(?!DirectBufferAddress)|\bPlatform\.(copyMemory|setMemory)|"
    r"\b(XXH64\.hashUnsafe|ByteArrayMethods\.)"
)


def test_assertions_are_enabled_in_the_tests(spark: SparkSession) -> None:
    """Otherwise none of the tests of the state would check an access."""
    assert named(spark, "Raw").desiredAssertionStatus()


def test_unchecked_accesses_are_in_one_class() -> None:
    found = {path.stem for path in SOURCES.glob("*.java") if _ACCESS.search(path.read_text())}
    assert found == {"Raw"}


def test_each_unchecked_access_of_that_class_is_asserted() -> None:
    methods = re.findall(
        r"  public static [^{;]+\{\n(.*?)\n  \}", (SOURCES / "Raw.java").read_text(), re.DOTALL
    )
    accesses = [method for method in methods if _ACCESS.search(method)]
    assert len(accesses) >= 10
    assert all(method.lstrip().startswith("assert ") for method in accesses)


@pytest.fixture(params=[PLENTY, 0], ids=["plain", "mapped file"])
def memory(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """Memory of ours, outside of files or in them."""
    jvm: Any = spark.sparkContext._jvm
    made = jvm.edgewake.Memory(request.param, jvm.java.io.File(str(tmp_path)))
    yield made
    made.close()


def refused(access: Any, *arguments: Any) -> bool:
    """Does an assertion refuse this access?"""
    try:
        access(*arguments)
    except Py4JJavaError as error:
        if not str(error.java_exception).startswith("java.lang.AssertionError: "):
            raise
        return True
    return False


@pytest.mark.parametrize(
    ("access", "size", "more"),
    [
        ("getByte", 1, ()),
        ("getInt", 4, ()),
        ("getLong", 8, ()),
        ("putInt", 4, (7,)),
        ("putLong", 8, (7,)),
    ],
)
def test_an_access_one_byte_beyond_its_place_fails(
    spark: SparkSession, memory: Any, access: str, size: int, more: tuple[int, ...]
) -> None:
    """Control: the access that ends with the place's last byte does not."""
    raw: Any = spark.sparkContext._jvm.edgewake.Raw
    place = memory.take(40)
    assert memory.reserved() > PLACE + 8, (
        "what lies behind it is memory, too: nothing but the assertion would notice"
    )
    long = spark.sparkContext._jvm.java.lang.Long
    values = [long(value) if access == "putLong" else value for value in more]
    assert not refused(getattr(raw, access), place + PLACE - size, *values)
    assert refused(getattr(raw, access), place + PLACE - size + 1, *values)


def test_an_access_before_or_beyond_a_block_fails(spark: SparkSession, memory: Any) -> None:
    raw: Any = spark.sparkContext._jvm.edgewake.Raw
    block = memory.block(BLOCK)
    assert not refused(raw.getLong, block)
    assert not refused(raw.getLong, block + BLOCK - 8)
    assert refused(raw.getLong, block - 1)
    assert refused(raw.getLong, block + BLOCK - 7)
    assert not refused(raw.clear, block, BLOCK)
    assert refused(raw.clear, block, BLOCK + 1)


def test_an_access_to_what_was_freed_fails(spark: SparkSession, memory: Any) -> None:
    """Of a free place its header is ours still: it links the free ones."""
    raw: Any = spark.sparkContext._jvm.edgewake.Raw
    place, block = memory.take(40), memory.block(BLOCK)
    assert not refused(raw.getLong, place + 16)
    memory.giveBack(place)
    assert not refused(raw.getLong, place + 8)
    assert refused(raw.getLong, place + 16)
    memory.giveBackBlock(block, BLOCK)
    assert refused(raw.getByte, block)
    taken = memory.take(40)
    assert taken == place
    assert not refused(raw.getLong, place + 16)
    memory.close()
    assert refused(raw.getInt, place)


def test_a_place_cannot_be_freed_twice(memory: Any) -> None:
    """Without any assertion: two rows would get the same place afterwards."""
    place = memory.take(1000)
    memory.giveBack(place)
    with pytest.raises(ArrayIndexOutOfBoundsException):
        memory.giveBack(place)
    assert memory.used() == 0
    assert memory.take(1000) == place
    assert memory.take(1000) != place


def test_an_access_beyond_an_array_fails(spark: SparkSession, memory: Any) -> None:
    raw: Any = spark.sparkContext._jvm.edgewake.Raw
    place, array = memory.take(40), bytes(24)
    assert not refused(raw.getInt, array, 20)
    assert refused(raw.getInt, array, 21)
    assert refused(raw.getInt, array, -1)
    assert not refused(raw.hash, array, 24)
    assert refused(raw.hash, array, 25)
    assert not refused(raw.copy, array, place + 8, 24)
    assert refused(raw.copy, array, place + 8, 25), "the array ends"
    assert refused(raw.copy, array, place + PLACE - 23, 24), "the place ends"
    assert not refused(raw.copy, place, array, 0, 24)
    assert refused(raw.copy, place, array, 1, 24), "the array ends"
    assert not refused(raw.equal, place + 8, array, 24)
    assert refused(raw.equal, place + PLACE - 23, array, 24), "the place ends"


def test_a_packed_row_that_is_cut_is_noticed(spark: SparkSession, memory: Any) -> None:
    """A row says how many words it has: where it says more than there are, reading goes beyond its
    place.
    """
    jvm: Any = spark.sparkContext._jvm
    place = memory.take(40)
    whole = bytes([3, 0b111, *range(1, 25)])
    jvm.edgewake.Raw.copy(whole, place + 16, len(whole))
    assert bytes(jvm.edgewake.Packed.unpack(place + 16)) == bytes(range(1, 25))
    cut = bytes([4, 0b1111]) + whole[2:]
    jvm.edgewake.Raw.copy(cut, place + 16, len(cut))
    assert refused(jvm.edgewake.Packed.unpack, place + 16)
