"""Old images of the disk and backups of the log: nothing is lost and nothing counted twice, as the
real sequencer decides it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.frame_order import FrameOrder
from edgewake.edge.log.event_log import OutFrame
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.frames.record import Discipline, Placement
from tests.edge.helpers import Sent, frame_of, opened, put
from tests.services import wait_until

pytestmark = pytest.mark.usefixtures("short_waits")

NOW_MS = 1_790_000_000_000


class Cloud:
    """The sequencer's decisions about one device's stream, and the readings that passed."""

    def __init__(self) -> None:
        self._order = FrameOrder(Bounds())
        self._offset = 0
        self.readings: Counter[object] = Counter()

    def take(self, out: OutFrame) -> None:
        """One frame."""
        frame = frame_of(out)
        assert frame.epoch is not None
        assert frame.frame is not None
        assert frame.seq is not None
        placement = Placement(
            Discipline.ORDERED,
            out.key.stream,
            frame.epoch,
            frame.frame,
            frame.frame,
            frame.seq,
            out.count,
        )
        arrival = Arrival(
            self._offset, "device", placement, len(out.payload), NOW_MS, payload=frame
        )
        self._offset += 1
        for passed in self._order.accept(arrival, now_s=float(self._offset)):
            assert isinstance(passed, Arrival)
            self.readings.update(passed.payload.fields.get("n", ()))


def live(
    directory: Path,
    numbers: range,
    cloud: Cloud | None,
    *,
    boot: str,
    seed: int = 1,
    limit: int = 10,
) -> None:
    """One life: accept numbers one by one; with a cloud, send everything until it is
    acknowledged.
    """
    sent = Sent()
    with opened(
        directory, sent=sent, boot=boot, seed=seed, uplink=UplinkConfig(frame_readings_max=limit)
    ) as events:
        for n in numbers:
            put(events, range(n, n + 1))
        if cloud is None:
            return
        events.start_sending()
        wait_until(
            lambda: sent.acknowledge(events) or not events.status().backlog_readings, "acknowledged"
        )
        for out in sent:
            cloud.take(out)


def image_of(directory: Path) -> dict[str, bytes]:
    """All files, as an image of the disk keeps them."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def put_back(directory: Path, image: dict[str, bytes]) -> None:
    """The same inodes with older bytes, as when an image is written to the disk."""
    for path in directory.iterdir():
        if path.name not in image:
            path.unlink()
    for name, content in image.items():
        (directory / name).write_bytes(content)


def exactly(*ranges: range) -> Counter[object]:
    """Each once."""
    return Counter(n for one in ranges for n in one)


@pytest.mark.parametrize("limit", [10, pytest.param(1000, marks=pytest.mark.long)])
def test_an_old_image_put_back_loses_and_doubles_nothing(tmp_path: Path, limit: int) -> None:
    """The numbers that the other life used are not used again for other readings; what waited in
    the image keeps its own.
    """
    cloud = Cloud()
    live(tmp_path / "log", range(50), cloud, boot="first", limit=limit)
    live(tmp_path / "log", range(50, 80), None, boot="first", limit=limit)
    image = image_of(tmp_path / "log")
    live(tmp_path / "log", range(80, 150), cloud, boot="first", seed=2, limit=limit)
    put_back(tmp_path / "log", image)
    live(tmp_path / "log", range(1000, 1100), cloud, boot="second", seed=3, limit=limit)
    assert cloud.readings == exactly(range(150), range(1000, 1100))


@pytest.mark.long
def test_control_the_same_image_without_a_new_boot_id_loses(tmp_path: Path) -> None:
    """Or the test above would show nothing."""
    cloud = Cloud()
    live(tmp_path / "log", range(50), cloud, boot="first")
    image = image_of(tmp_path / "log")
    live(tmp_path / "log", range(50, 150), cloud, boot="first", seed=2)
    put_back(tmp_path / "log", image)
    live(tmp_path / "log", range(1000, 1100), cloud, boot="first", seed=3)
    assert len(exactly(range(150), range(1000, 1100)) - cloud.readings) == 100


def test_two_devices_from_one_image_lose_and_double_nothing(tmp_path: Path) -> None:
    cloud = Cloud()
    live(tmp_path / "log", range(50), None, boot="first")
    image = image_of(tmp_path / "log")
    live(tmp_path / "log", range(100, 150), cloud, boot="one", seed=2)
    put_back(tmp_path / "log", image)
    live(tmp_path / "log", range(200, 250), cloud, boot="two", seed=3)
    assert cloud.readings == exactly(range(50), range(100, 150), range(200, 250))


@pytest.mark.parametrize("limit", [10, pytest.param(1000, marks=pytest.mark.long)])
def test_a_log_restored_from_a_backup_sends_its_backlog_under_the_numbers_it_had(
    tmp_path: Path, limit: int
) -> None:
    cloud = Cloud()
    live(tmp_path / "log", range(100), None, boot="one", limit=limit)
    backup = (tmp_path / "log" / LOG_NAME).read_bytes()
    live(tmp_path / "log", range(100, 110), cloud, boot="one", seed=2, limit=limit)
    (tmp_path / "log" / LOG_NAME).write_bytes(backup)
    live(tmp_path / "log", range(200, 210), cloud, boot="one", seed=3, limit=limit)
    assert cloud.readings == exactly(range(110), range(200, 210))


def test_more_starts_without_a_connection_than_epochs_can_wait_lose_nothing(tmp_path: Path) -> None:
    cloud = Cloud()
    for start in range(70):
        live(tmp_path / "log", range(start * 2, start * 2 + 2), None, boot=str(start), seed=start)
    live(tmp_path / "log", range(140, 150), cloud, boot="last", seed=100)
    assert cloud.readings == exactly(range(150))
