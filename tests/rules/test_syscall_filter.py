"""The system call filter of the sandbox, run on an interpreter of seccomp programs: it rejects unlisted calls."""

from __future__ import annotations

import random
import struct

import pytest

from heliograph.tools.syscall_filter import ALLOW, ENOSYS, EPERM, KILL, MACHINES, allowed_numbers, filter_program

pytestmark = pytest.mark.proves("S23")

CHECKED = {
    "x86_64": {"mmap": 9, "madvise": 28, "ioctl": 16, "fcntl": 72, "prlimit64": 302, "kill": 62, "tgkill": 234, "clone": 56,
               "prctl": 157, "socketpair": 53, "socket": 41, "clone3": 435, "close_range": 436},
    "aarch64": {"mmap": 222, "madvise": 233, "ioctl": 29, "fcntl": 25, "prlimit64": 261, "kill": 129, "tgkill": 131,
                "clone": 220, "prctl": 167, "socketpair": 199, "socket": 198, "clone3": 435, "close_range": 436},
}  # fmt: skip
EITHER = [(machine, network) for machine in MACHINES for network in (False, True)]


def verdict(program: bytes, architecture: int, number: int, *args: int) -> int:
    data = struct.pack(
        "IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *[a & (1 << 64) - 1 for a in (*args, *[0] * 6)[:6]]
    )
    lines, place, value = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)], 0, 0
    while True:
        code, yes, no, operand = lines[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("I", data, operand)
        elif code == 0x54:
            value &= operand
        elif code == 0x15:
            place += yes if value == operand else no
        else:
            assert code == 0x06
            return int(operand)


@pytest.mark.parametrize(("machine", "network"), EITHER)
def test_unlisted_syscall_is_rejected_for_any_arguments(machine: str, network: bool) -> None:
    program, choose = filter_program(machine, network=network), random.Random(1)
    listed = allowed_numbers(machine, network=network)
    for number in [*range(2000), *(0x40000000 + each for each in range(2000)), 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000]:
        if number in listed or number in CHECKED[machine].values():
            continue
        args = [choose.choice([0, 1, 2, choose.getrandbits(64)]) for _ in range(6)]
        assert verdict(program, MACHINES[machine][0], number, *args) == EPERM, number


@pytest.mark.parametrize(("machine", "network"), EITHER)
def test_call_under_another_architecture_kills_the_process(machine: str, network: bool) -> None:
    program = filter_program(machine, network=network)
    for architecture in {0x40000003, 0xC000003E, 0xC00000B7, 0} - {MACHINES[machine][0]}:
        assert {verdict(program, architecture, number) for number in range(500)} == {KILL}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "allowed", "rejected"),
    [
        ("clone", [(0x3D0F00,), (0x7D0F00,), (1 << 40 | 0x3D0F00,)],
         [(17,), (0x3D0F00 | 0x10000000,), (0x3D0F00 | 0x2000,), (0x3D0F00 | 0x8000,), (0x3D0F00 | 0x1000,), (0x100,), (0x10000,), (0x3D0B00,), (0x3D0D00,)]),
        ("close_range", [(3, 9, 0), (3, 9, 4)], [(3, 9, 2), (3, 9, 6), (3, 9, 8)]),
        ("fcntl", [(1, 1), (1, 3), (1, 4), (1, 1030), (1, 6), (1, 1 << 32 | 3)],
         [(1, 8), (1, 10), (1, 15), (1, 1024), (1, 1026), (1, 1031), (1, 1033), (1, 1 << 32 | 8), (1, 0xFFFFFFFF)]),
        ("ioctl", [(0, 0x5401), (0, 0x5413), (0, 0x5421)], [(0, 0x5412), (0, 0x8901), (0, 0x8902), (0, 0x5452), (0, 0x541D)]),
        ("prlimit64", [(0, 7), (1 << 32, 7)], [(1,), (2,), (-1,), (77,)]),
        ("kill", [(2, 15), (1 << 32 | 2, 9)], [(0, 9), (1, 9), (-1, 9), (-2, 9), (3, 9), (1 << 32, 9)]),
        ("tgkill", [(2, 5, 6)], [(1, 1, 9), (0, 2, 9), (3, 3, 9), (-1, 2, 9)]),
        ("prctl", [(15,), (16,), (0x53564D41,)], [(1,), (4,), (22,), (23,), (24,), (28,), (38,), (47,), (59,), (0x59616D61,)]),
        ("mmap", [(0, 1, 3, 0x22)], [(0, 1, 3, 0x40022)]),
        ("madvise", [(0, 1, 4)], [(0, 1, 12), (0, 1, 100), (0, 1, 101)]),
        ("socketpair", [(1, 1), (1, 0x80801)], [(1, 2), (1, 5), (2, 1), (16, 1)]),
        ("socket", [], [(2, 1), (1, 1), (10, 2), (16, 3)]),
    ],
)  # fmt: skip
def test_partly_allowed_call_is_decided_by_its_arguments(
    machine: str, name: str, allowed: list[tuple[int, ...]], rejected: list[tuple[int, ...]]
) -> None:
    program, (architecture, _), number = (
        filter_program(machine, network=False),
        MACHINES[machine],
        CHECKED[machine][name],
    )
    assert {verdict(program, architecture, number, *args) for args in allowed} <= {ALLOW}
    assert {verdict(program, architecture, number, *args) for args in rejected} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
def test_granted_network_allows_tcp_and_udp_alone(machine: str) -> None:
    program, (architecture, _), number = (
        filter_program(machine, network=True),
        MACHINES[machine],
        CHECKED[machine]["socket"],
    )
    for kind in ((2, 1, 0), (10, 0x80802, 17), (2, 1, 6)):
        assert verdict(program, architecture, number, *kind) == ALLOW
    for kind in ((1, 1, 0), (16, 3, 0), (17, 3, 0), (40, 1, 0), (2, 3, 1), (2, 1, 262), (38, 5, 0)):
        assert verdict(program, architecture, number, *kind) == EPERM


@pytest.mark.parametrize(("machine", "network"), EITHER)
def test_clone3_is_unimplemented_so_that_libc_uses_clone(machine: str, network: bool) -> None:
    assert verdict(filter_program(machine, network=network), MACHINES[machine][0], 435) == ENOSYS
