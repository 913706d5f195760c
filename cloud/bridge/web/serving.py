"""Opens the bridge's door for HTTP, and follows the files that it goes by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from edgewake.cloud.bridge.admission.mapped import Mapper
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.http_config import HttpConfig
from edgewake.cloud.bridge.web import provisioning
from edgewake.cloud.bridge.web.device_certificates import DeviceCertificates
from edgewake.cloud.bridge.web.device_passwords import DevicePasswords
from edgewake.cloud.bridge.web.door import Door, Questions
from edgewake.cloud.bridge.web.requests import Requests
from edgewake.cloud.client_share import Bound, Clients
from edgewake.cloud.web import http_part, tls
from edgewake.cloud.web.connections import Connections
from edgewake.cloud.web.gone import notice_gone
from edgewake.protocol.clock import Clock
from edgewake.protocol.maps.device_tokens import DeviceTokens
from edgewake.protocol.maps.map_file import LOOK_S, MapFile

log = logging.getLogger("edgewake.bridge.http")


async def serve(
    config: HttpConfig,
    bridge: Bridge,
    clock: Clock,
    stop: asyncio.Event,
    questions: Questions | None = None,
) -> None:
    """Take readings, and answer `questions`, until `stop`. Raises ConfigError."""
    assert config.port is not None, "it is wanted"
    maps = MapFile(config.file, config.map_presets, zone=config.zone, needs_names=True)
    tokens = None if config.tokens_file is None else DeviceTokens(config.tokens_file)
    passwords = None if config.password_file is None else DevicePasswords(config.password_file)
    book = config.certificates_file
    certificates = None if book is None else DeviceCertificates(book)
    encrypted = tls.context(config.also_cert_file, config.also_key_file, config.also_client_ca_file)
    listeners = http_part.bind_all((config.host, *config.also_hosts), config.port)
    notice_gone(listeners)
    mapper = Mapper(maps.maps, config.prefix)
    requests = Requests(
        mapper, tokens, config.prefix, config.body_bytes_max, passwords, certificates
    )
    clients = Clients(config.trusted_proxies)
    door = Door(
        requests,
        bridge,
        bridge.metrics.http,
        body_bytes_max=config.body_bytes_max,
        bodies=Bound("bytes", config.bodies_bytes_max, config.address_share),
        clients=clients,
        clock=clock,
        trusts_machine=config.local,
        tokens_for=provisioning.opened(config.enrol_url, config.enrol_ca_file),
        questions=questions,
    )
    files = (tokens, passwords, certificates)
    async with asyncio.TaskGroup() as tasks:  # who is known no more is let in where it has died
        following = tasks.create_task(_follow(maps, mapper, files, clock), name="http-files")
        try:
            await http_part.serve(
                door,
                listeners,
                stop=stop,
                encrypted=encrypted,
                on_ready=lambda: log.info(
                    "takes readings by HTTP at %s:%s",
                    config.host,
                    config.port,
                    extra={"event": "bridge.http"},
                ),
                connections=Connections(
                    config.connections_max, share=config.address_share, clients=clients
                ),
            )
        finally:
            following.cancel()


async def _follow(
    maps: MapFile,
    mapper: Mapper,
    holders: Iterable[DeviceTokens | DevicePasswords | DeviceCertificates | None],
    clock: Clock,
) -> None:
    while True:
        await clock.sleep(LOOK_S)
        if await asyncio.to_thread(maps.look):
            mapper.follow(maps.maps)
        for one in holders:
            if one is not None:
                await asyncio.to_thread(one.look)
