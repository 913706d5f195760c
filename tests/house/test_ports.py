"""Services of tests get ports that nobody else in their process was given."""

import socket

from tests.services import PORTS, free_ports


def test_a_port_that_no_service_has_bound_yet_is_not_given_again() -> None:
    half = PORTS // 2
    given = [port for _ in range(half // 2) for port in free_ports(2)]
    assert len(set(given)) == len(given)


def test_ports_are_given_again_when_all_were_but_none_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as service:
        given = [port for _ in range(PORTS) for port in free_ports(2)]
        in_use = service.getsockname()[1]
    assert len(given) == 2 * PORTS
    assert in_use not in given
