"""The steps of `edgewake up`: check, prepare, write files, supervise, print addresses."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import tomli_w

from edgewake.deploy import data_folder, demo_units, login_link, network, secret_files
from edgewake.deploy.doctor import checks
from edgewake.deploy.faults import control
from edgewake.deploy.faults.desk import Desk
from edgewake.deploy.faults.link import Link
from edgewake.deploy.parts import part_status
from edgewake.deploy.parts.lifecycle import State
from edgewake.deploy.parts.part import Part
from edgewake.deploy.parts.supervisor import Keeper, Supervisor, failure, restart_line
from edgewake.deploy.plan import (
    Plan,
    check,
    config_file,
    configs,
    network_ports,
    parts,
    ports_wanted,
)
from edgewake.deploy.programs import jars, java, kafka_node, mosquitto
from edgewake.deploy.progress import Step, Steps
from edgewake.protocol import installation
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.errors import ConfigError, LocalError
from edgewake.protocol.installation import Installation, key_of
from edgewake.protocol.maps.map_file import MapFile
from edgewake.protocol.names import is_device

EXAMPLE_QUERY: Final = Path(__file__).parent / "examples" / "fast_vehicles.sql"


@dataclass(frozen=True, slots=True)
class Tools:
    """What was found or installed."""

    java: Path | None = None
    mosquitto: Path | None = None
    kafka_jars: Path | None = None
    spark_jars: Path | None = None


def main(plan: Plan, *, for_s: float | None) -> None:
    """Run until stopped; raises EdgewakeError with one sentence where it cannot."""
    check(plan)
    with data_folder.opened(plan.data), Steps(SystemClock()) as steps:
        checks.ports(ports_wanted(plan))
        if plan.listen:
            checks.ports(network_ports(plan), host=plan.listen)
        if plan.has("mosquitto") and (others := checks.other_users()):
            steps.print_line(checks.one_user_line(others, f"127.0.0.1:{plan.ports.mqtt}"))
        plan = replace(plan, device=_device(plan))
        tools = prepare_tools(plan, steps)
        running = prepare_files(plan, tools, steps)
        asyncio.run(supervise(plan, running, steps, for_s=for_s))


def prepare_tools(plan: Plan, steps: Steps) -> Tools:
    """Find, install or download, all at once. Raises the first problem when all have ended."""
    wanted: dict[str, tuple[str, Callable[[Step], Path]]] = {}
    if plan.has("kafka") or plan.has("analysis"):
        wanted["java"] = (
            f"Java {java.VERSION_MIN} to {java.VERSION_MAX}",
            lambda _step: java.ensure(),
        )
    if plan.has("mosquitto"):
        wanted["mosquitto"] = ("Mosquitto", lambda _step: mosquitto.ensure())
    if plan.has("kafka"):
        wanted["kafka_jars"] = ("Kafka", lambda step: jars.ensure("kafka", progress=step.update))
    if plan.has("analysis"):
        wanted["spark_jars"] = (
            "Spark's connector to Kafka",
            lambda step: jars.ensure("spark", progress=step.update),
        )
    with ThreadPoolExecutor(4, thread_name_prefix="prepare") as pool:
        jobs = {
            name: pool.submit(_in_a_step, steps, text, work)
            for name, (text, work) in wanted.items()
        }
        try:
            return Tools(**{name: job.result() for name, job in jobs.items()})
        except KeyboardInterrupt:
            steps.cancel()
            raise


def _in_a_step(steps: Steps, text: str, work: Callable[[Step], Path]) -> Path:
    with steps.step(text) as step:
        return work(step)


def prepare_files(plan: Plan, tools: Tools, steps: Steps) -> list[Part]:
    """Secrets, configuration files, Kafka's storage; the parts to run. Raises LocalError."""
    secret_files.ensure(plan.cursor_key_file, secret_files.cursor_key())
    secret_files.ensure(plan.lease_key_file, secret_files.lease_key())
    secret_files.ensure(plan.seal_key_file, secret_files.lease_key())
    secret_files.ensure(plan.share_key_file, secret_files.share_key())
    secret_files.ensure(plan.ops_key_file, secret_files.ops_key())
    if plan.faults:
        secret_files.ensure(plan.faults_key_file, secret_files.ops_key())
        plan.verdict_file.unlink(missing_ok=True)
    if plan.listen:
        network.prepare(plan, SystemClock())
    kafka, broker = _kafka_node(plan, tools), _broker(plan, tools)
    try:
        plan.config_dir.mkdir(exist_ok=True)
        plan.logs.mkdir(exist_ok=True)
        for name, values in configs(plan, tools.spark_jars).items():
            config_file(plan, name).write_text(
                "# Written by `edgewake up` at each start.\n" + tomli_w.dumps(values), "utf-8"
            )
    except OSError as error:
        raise LocalError(f"{plan.config_dir}: {error.strerror}") from error
    if broker:
        mosquitto.prepare(broker)
    if kafka:
        with steps.step("Kafka's storage"):
            kafka_node.prepare(kafka)
    return parts(
        plan,
        kafka=kafka_node.command(kafka) if kafka else (),
        mosquitto=mosquitto.command(broker) if broker else (),
        java_home=java.home(tools.java) if tools.java else None,
    )


def _kafka_node(plan: Plan, tools: Tools) -> kafka_node.KafkaNode | None:
    if not (tools.java and tools.kafka_jars):
        return None
    ports = plan.ports
    return kafka_node.KafkaNode(
        java=tools.java,
        jars=tools.kafka_jars,
        directory=plan.data / "kafka",
        port=ports.kafka,
        controller_port=ports.kafka_controller,
    )


def _broker(plan: Plan, tools: Tools) -> mosquitto.Broker | None:
    if not tools.mosquitto:
        return None
    return mosquitto.Broker(
        program=tools.mosquitto,
        directory=plan.data / "mosquitto",
        port=plan.ports.mqtt,
        network=plan.listen,
        password_file=plan.password_file,
        authority=plan.authority if plan.encrypted else None,
        certificate_port=plan.ports.mqtt_certificates,
        mapped=_mapped(plan),
    )


def _mapped(plan: Plan) -> tuple[str, ...]:
    """Topics of the maps that the bridge reads with. Raises ConfigError."""
    if not plan.presets:
        return ()
    try:
        return tuple(MapFile(None, plan.presets).maps.filters)
    except ValueError as error:
        raise ConfigError(f"--preset: {error}") from error


def _device(plan: Plan) -> str:
    """The name of this machine as a device.

    An earlier name is kept, because the agent's log belongs to it.
    """
    try:
        before = str(tomllib.loads(config_file(plan, "agent").read_text("utf-8"))["device"])
        return before if is_device(before) else plan.device
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        name = socket.gethostname()
        return name if is_device(name) else plan.device


async def supervise(
    plan: Plan, running: Sequence[Part], steps: Steps, *, for_s: float | None
) -> None:
    """Run the parts until a signal or the time. Raises LocalError where one failed to start."""
    clock, rng, stop = SystemClock(), random.Random(), asyncio.Event()
    supervisor = Supervisor(running, plan.logs, clock=clock, rng=rng)
    loop = asyncio.get_running_loop()
    show = Show(steps)
    for keeper in supervisor.keepers.values():
        keeper.on_change = show

    def stop_or_kill() -> None:
        if stop.is_set():
            supervisor.kill_all()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop_or_kill)

    async def print_addresses() -> None:
        link = (
            await asyncio.to_thread(login_link.make, ops_url(plan), plan.ops_key_file)
            if plan.has("ops")
            else ""
        )
        if plan.listen:
            await asyncio.to_thread(network.ensure_first_device, plan, ops_url(plan))
            reload_broker(supervisor)  # what is printed is right when it is read
        steps.print_line(addresses(plan, link))

    def when_ready() -> None:
        printing.append(asyncio.create_task(print_addresses(), name="addresses"))
        if for_s is not None:
            loop.call_later(for_s, stop.set)

    printing: list[asyncio.Task[None]] = []
    installation.write(plan.data, run_file(plan))
    watcher = asyncio.create_task(_announce_stop(stop, steps), name="stopping")
    try:
        await supervisor.run(
            stop,
            when_ready=when_ready,
            alongside=_alongside(plan, supervisor, clock),
        )
    finally:
        watcher.cancel()
    steps.print_line("✓ all parts have stopped")
    if failed := supervisor.failed():
        raise LocalError("; ".join(map(failure, failed)))


def reload_broker(supervisor: Supervisor) -> None:
    """Have Mosquitto read its passwords, and what was taken back, again."""
    keeper = supervisor.keepers.get("mosquitto")
    if keeper is not None and keeper.child is not None:
        keeper.child.send_signal(signal.SIGHUP)


def _alongside(
    plan: Plan, supervisor: Supervisor, clock: Clock
) -> list[Callable[[], Awaitable[None]]]:
    """What runs beside the parts: their status, who may come in at the broker, units, faults."""

    async def publish() -> None:
        await part_status.publish(
            supervisor.keepers.values(), f"127.0.0.1:{plan.ports.kafka}", clock
        )

    async def follow_credentials() -> None:
        await network.reload_at_change(plan, lambda: reload_broker(supervisor), clock)

    found: list[Callable[[], Awaitable[None]]] = []
    if plan.has("kafka"):
        found.append(publish)
    if plan.listen and plan.has("mosquitto"):
        found.append(follow_credentials)
    if plan.has("ops") and plan.has("simulators"):
        found.append(lambda: demo_units.give(ops_url(plan), key_of(plan.ops_key_file), clock))
    if plan.faults:
        links = [
            Link(name, text, port=plan.ports.link(name), to_port=to_port)
            for name, text, to_port in (
                ("devices", "devices to the broker", plan.ports.mqtt),
                ("bridge", "bridge to the broker", plan.ports.mqtt),
                ("readers", "the ledger to its access server", plan.ports.access(0)),
            )
        ]
        desk = Desk(supervisor.keepers, links, plan.verdict_file, clock)
        key = key_of(plan.faults_key_file)
        found += [link.serve for link in links]
        found.append(lambda: control.serve(desk, plan.ports.faults, key))
    return found


async def _announce_stop(stop: asyncio.Event, steps: Steps) -> None:
    await stop.wait()
    steps.print_line("stopping, upstream first; once more Ctrl-C kills at once")


class Show:
    """Prints what happens to the parts."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._starting: dict[str, Step] = {}

    def __call__(self, keeper: Keeper) -> None:
        name, step = keeper.part.name, None
        if keeper.state is not State.STARTING:
            step = self._starting.pop(name, None)
        match keeper.state:
            case State.STARTING:
                self._starting[name] = self._steps.start(name)
            case State.READY if step:
                step.done("again" if keeper.restarts else "")
            case State.RESTARTING:
                self._fail(step, restart_line(keeper))
            case State.FAILED:
                self._steps.print_line(f"✗ {failure(keeper)}")
            case State.STOPPED if step:
                step.drop()

    def _fail(self, step: Step | None, text: str) -> None:
        if step:
            step.drop()
        self._steps.print_line(f"✗ {text}")


def ops_url(plan: Plan) -> str:
    """Address of the operations API."""
    return f"http://127.0.0.1:{plan.ports.ops}"


def run_file(plan: Plan) -> Installation:
    """What other commands need to find this system."""
    accesses = tuple(f"http://127.0.0.1:{plan.ports.access(i)}" for i in range(plan.access_servers))
    return Installation(
        access=accesses if plan.has("access") else (),
        push=(f"http://127.0.0.1:{plan.ports.push}",) if plan.has("push") else (),
        ops=ops_url(plan) if plan.has("ops") else "",
        ops_key_file=str(plan.ops_key_file) if plan.has("ops") else "",
        mqtt=f"127.0.0.1:{plan.ports.mqtt}" if plan.has("mosquitto") else "",
        kafka=f"127.0.0.1:{plan.ports.kafka}" if plan.has("kafka") else "",
    )


def addresses(plan: Plan, link: str) -> str:
    """What to open and what to try. `link` logs a browser in at the operations API."""
    ports, lines = plan.ports, ["", "Edgewake is running."]
    page = f"http://127.0.0.1:{ports.access(0)}"
    if plan.has("access"):
        lines.append(
            f"  page              {page}/   (every stream; the simulated town: {page}/town)"
        )
        lines += [
            f"  access server {i + 1}   http://127.0.0.1:{ports.access(i)}/"
            for i in range(1, plan.access_servers)
        ]
    if plan.has("ops"):
        lines += [
            f"  operations API    {link}",
            "                    (once, within ten minutes; `edgewake login` prints another link)",
        ]
        lines.append(f"  its key           in {_short(plan.ops_key_file)}")
    if plan.has("mosquitto"):
        lines.append(
            f"  MQTT for devices  127.0.0.1:{ports.mqtt}, topic ew/v1/<device>/up/<stream>"
        )
    if plan.has("bridge"):
        lines.append(
            f"  HTTP for devices  http://127.0.0.1:{ports.http}/ew/v1/<device>/up/<stream>"
        )
    lines.append(f"  data and logs     {plan.data}")
    if plan.listen:
        lines += network.lines(plan)
    return "\n".join([*lines, *commands(plan), "", "Ctrl-C stops everything."])


def commands(plan: Plan) -> list[str]:
    """Three commands to try."""
    if not plan.has("access"):
        return []
    page, edgewake = f"http://127.0.0.1:{plan.ports.access(0)}", _edgewake()
    lines = ["", "Try in another terminal:", f"  curl -N {page}/v1/streams/host_10s/events"]
    if plan.data != installation.DATA_DEFAULT.absolute():
        lines.append(
            f"  export {installation.DATA_VARIABLE}={_short(plan.data)}      # so that the "
            "commands find this system"
        )
    lines.append(f"  {edgewake} tail vehicle_position --where 'speed_kmh > 50'")
    if plan.has("ops"):
        lines.append(f"  {edgewake} query add {_short(EXAMPLE_QUERY)}")
    return lines


def _short(path: Path) -> str:
    """As seen from here, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _edgewake() -> str:
    """The command with which this user calls us: by name where it is on PATH, else by its path."""
    script = Path(sys.executable).with_name("edgewake")
    on_path = any(Path(folder) == script.parent for folder in os.get_exec_path())
    return "edgewake" if on_path or not script.exists() else _short(script)
