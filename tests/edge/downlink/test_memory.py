"""What comes down is checked by what the agent has: a device does not pay for a message until its
next restart.
"""

from __future__ import annotations

from pathlib import Path

from edgewake.protocol.downlink.downlink import ANSWERS
from tests.edge.downlink.cloud import publish
from tests.edge.peer import Peer
from tests.edge.test_agent import READY, RESIDENT_MIB_MAX, config, resident_mib
from tests.services import Mosquitto, part

DEVICE = "thrifty"
SOURCES = """
[[source]]
type = "file_tail"
stream = "device_requests"
path = "{directory}/requests"
[[source]]
type = "subscription"
stream = "echo"
follow = ["speed"]
[downlink]
settings = true
requests = true
[downlink.command.note]
argv = ["/bin/true"]
"""


async def test_after_a_message_of_every_kind_the_agent_is_as_small_as_before(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    (tmp_path / "requests").write_text('{"id":"r1","name":"route"}\n')
    path = config(tmp_path, mosquitto.port, DEVICE, SOURCES.format(directory=tmp_path))
    async with Peer(mosquitto.port) as peer:

        def answers() -> list[tuple[object, object]]:
            return [
                (answer["kind"], answer["state"]) for answer in peer.kept.readings(DEVICE, ANSWERS)
            ]

        with part("agent", path, tmp_path / "out") as agent:
            agent.wait_for(READY)
            await peer.until(lambda: peer.statuses)
            await peer.until(lambda: peer.kept.readings(DEVICE, "device_requests"))
            publish(peer, DEVICE, "command", b"{")
            publish(peer, DEVICE, "command", {"id": "a", "name": "note"})
            publish(
                peer, DEVICE, "settings", {"id": "b", "version": 1, "text": "log.linger_ms = 'x'"}
            )
            publish(peer, DEVICE, "reply", {"id": "reply-r1", "state": "answered", "body": "12 km"})
            publish(
                peer,
                DEVICE,
                "feed",
                {
                    "feed": "echo",
                    "after": "",
                    "cursor": "v2.x",
                    "events": [{"speed": 5.5, "device": "lead"}],
                },
            )
            await peer.until(lambda: len(answers()) == 3)
            await peer.until(lambda: peer.kept.readings(DEVICE, "echo"))
            libraries = Path(f"/proc/{agent.pid}/maps").read_text("utf-8")
            assert "orjson" in libraries, "what it does use is seen there"
            assert "pydantic_core" not in libraries
            assert resident_mib(agent.pid) <= RESIDENT_MIB_MAX
            assert answers() == [("command", "done"), ("settings", "refused"), ("reply", "done")]
            assert "linger_ms" in str(peer.kept.readings(DEVICE, ANSWERS)[1]["detail"])
            assert '"event":"downlink.refused"' in agent.output()
            assert agent.stop() == 0
