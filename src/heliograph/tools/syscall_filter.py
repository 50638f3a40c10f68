"""Compile the allow-list of system calls for sandboxed code into a seccomp program. Pure: it only computes bytes.

A call that is not on the list fails with EPERM, and so do calls of newer kernels and of the x32 ABI, whose numbers begin at
0x40000000. A call of another architecture kills the process.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MACHINES = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}  # audit architecture, and the column in the lists below
SANDBOXED_PID = 2  # in its PID namespace, whose init is 1

# name:number on x86_64:number on aarch64
_ALLOWED = """
access:21:-  alarm:37:-  brk:12:214  chdir:80:49  chmod:90:-  clock_getres:229:114  clock_gettime:228:113
clock_nanosleep:230:115  close:3:57  copy_file_range:326:285  creat:85:-  dup:32:23  dup2:33:-  dup3:292:24
epoll_create:213:-  epoll_create1:291:20  epoll_ctl:233:21  epoll_pwait:281:22  epoll_pwait2:441:441
epoll_wait:232:-  eventfd:284:-  eventfd2:290:19  exit:60:93  exit_group:231:94  faccessat:269:48  faccessat2:439:439
fallocate:285:47  fchdir:81:50  fchmod:91:52  fchmodat:268:53  fchmodat2:452:452  fdatasync:75:83
fgetxattr:193:10  flistxattr:196:13  fstat:5:80  fstatfs:138:44  fsync:74:82  ftruncate:77:46  futex:202:98
futimesat:261:-  getcpu:309:168  getcwd:79:17  getdents:78:-  getdents64:217:61  getegid:108:177  geteuid:107:175
getgid:104:176  getgroups:115:158  getitimer:36:102  getpeername:52:205  getpgid:121:155  getpgrp:111:-  getpid:39:172
getppid:110:173  getrandom:318:278  getresgid:120:150  getresuid:118:148  getrlimit:97:163  getrusage:98:165  getsid:124:156
getsockname:51:204  getsockopt:55:209  gettid:186:178  gettimeofday:96:169  getuid:102:174  getxattr:191:8  lgetxattr:192:9
link:86:-  linkat:265:37  listxattr:194:11  llistxattr:195:12  lseek:8:62  lstat:6:-  mkdir:83:-  mkdirat:258:34
mprotect:10:226  mremap:25:216  msync:26:227  munmap:11:215  nanosleep:35:101  newfstatat:262:79  open:2:-  openat:257:56
pause:34:-  pipe:22:-  pipe2:293:59  poll:7:-  ppoll:271:73  pread64:17:67  preadv:295:69  preadv2:327:286  pselect6:270:72
pwrite64:18:68  pwritev:296:70  pwritev2:328:287  read:0:63  readlink:89:-  readlinkat:267:78  readv:19:65  recvfrom:45:207
rename:82:-  renameat:264:38  renameat2:316:276  restart_syscall:219:128  rmdir:84:-  rseq:334:293  rt_sigaction:13:134
rt_sigpending:127:136  rt_sigprocmask:14:135  rt_sigreturn:15:139  rt_sigsuspend:130:133  rt_sigtimedwait:128:137
sched_getaffinity:204:123  sched_yield:24:124  select:23:-  sendfile:40:71  sendto:44:206  set_robust_list:273:99
set_tid_address:218:96  setitimer:38:103  setrlimit:160:164  shutdown:48:210  sigaltstack:131:132  signalfd4:289:74
stat:4:-  statfs:137:43  statx:332:291  symlink:88:-  symlinkat:266:36  sysinfo:99:179  time:201:-  timerfd_create:283:85
timerfd_gettime:287:87  timerfd_settime:286:86  times:100:153  truncate:76:45  umask:95:166  uname:63:160  unlink:87:-
unlinkat:263:35  utime:132:-  utimensat:280:88  utimes:235:-  write:1:64  writev:20:66
"""
_ALLOWED_WITH_NETWORK = """
accept:43:202  accept4:288:242  bind:49:200  connect:42:203  listen:50:201  recvmmsg:299:243  recvmsg:47:212
sendmmsg:307:269  sendmsg:46:211  setsockopt:54:208
"""
# its flags are in memory, which a filter cannot read: the filter returns ENOSYS, and libc calls clone instead
_CLONE3 = (435, 435)

_ANY = 0xFFFFFFFF
# CLONE_THREAD, SIGHAND, FILES, FS and VM are required: a thread with its own file table would have a file limit of its own.
# The other allowed flags are those that C libraries set for a new thread.
_THREAD_NEEDS, _THREAD_MAY = 0x10F00, 0x7D0F00
# duplicate, flags and locks; neither owner nor signal, lease or seal
_FILE_COMMANDS = {0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032}
_TERMINAL_AND_STATUS = {
    0x5401,
    0x802C542A,
    0x5413,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
}  # TCGETS(2), TIOCGWINSZ, FIO*, FIO*CLEX
_MEMORY_ADVICE = {0, 1, 2, 3, 4, 8, 10, 14, 15, 16, 17, 18}
_THREAD_NAMES = {15, 16, 0x53564D41}  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_TCP_AND_UDP = {0, 6, 17}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one argument: its low 32 bits, masked, are one of `values`. The kernel ignores the upper half of these."""

    argument: int
    values: frozenset[int]
    mask: int = _ANY


def _one_of(argument: int, *values: int, mask: int = _ANY) -> Condition:
    return Condition(argument, frozenset(values), mask)


_CHECKED: dict[tuple[int, int], tuple[Condition, ...]] = {
    (9, 222): (_one_of(3, 0, mask=0x40000),),  # mmap: no huge pages, because the machine has few
    (28, 233): (_one_of(2, *_MEMORY_ADVICE),),  # madvise
    (436, 436): (_one_of(2, 0, 4),),  # close_range: no file table of a thread's own (CLOSE_RANGE_UNSHARE)
    (16, 29): (_one_of(1, *_TERMINAL_AND_STATUS),),  # ioctl
    (72, 25): (_one_of(1, *_FILE_COMMANDS),),  # fcntl
    (302, 261): (_one_of(0, 0),),  # prlimit64: its own limits
    (62, 129): (_one_of(0, SANDBOXED_PID),),  # kill: itself
    (234, 131): (_one_of(0, SANDBOXED_PID),),  # tgkill: its own threads
    (56, 220): (
        _one_of(0, 0, mask=_ANY & ~_THREAD_MAY),
        _one_of(0, _THREAD_NEEDS, mask=_THREAD_NEEDS),
    ),  # clone: a thread, no process and no namespace
    (157, 167): (_one_of(0, *_THREAD_NAMES),),  # prctl
    (53, 199): (_one_of(0, 1), _one_of(1, 1, mask=0xF)),  # socketpair: a connected pair, as event loops need it
}
_CHECKED_WITH_NETWORK: dict[tuple[int, int], tuple[Condition, ...]] = {
    (41, 198): (
        _one_of(0, 2, 10),
        _one_of(1, 1, 2, mask=0xF),
        _one_of(2, *_TCP_AND_UDP),
    ),  # socket: only IPv4 and IPv6
}

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_Line = tuple[int, int, int, int]


def filter_program(machine: str, *, network: bool) -> bytes:
    """Return the seccomp program for a machine, a key of MACHINES. Raises KeyError for another machine."""
    architecture, column = MACHINES[machine]
    lines: list[_Line] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, KILL), (_LOAD, 0, 0, 0)]
    for number in sorted(allowed_numbers(machine, network=network)):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, ALLOW)]
    lines += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, ENOSYS)]
    for numbers, conditions in (_CHECKED | (_CHECKED_WITH_NETWORK if network else {})).items():
        block = _block(conditions)
        lines += [(_EQUAL, 0, len(block), numbers[column]), *block]
    lines.append((_RETURN, 0, 0, EPERM))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def allowed_numbers(machine: str, *, network: bool) -> set[int]:
    """Return the numbers of the system calls that are allowed with any arguments."""
    column = MACHINES[machine][1]
    entries = [entry.split(":") for entry in (_ALLOWED + (_ALLOWED_WITH_NETWORK if network else "")).split()]
    return {int(entry[1 + column]) for entry in entries if entry[1 + column] != "-"}


def _block(conditions: tuple[Condition, ...]) -> list[_Line]:
    """Return the instructions that allow a call if all conditions hold, and reject it otherwise."""
    lines: list[_Line] = []
    for condition in conditions:
        values = sorted(condition.values)
        lines += [(_LOAD, 0, 0, 16 + 8 * condition.argument), (_AND, 0, 0, condition.mask)]
        lines += [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
        lines.append((_RETURN, 0, 0, EPERM))
    return [*lines, (_RETURN, 0, 0, ALLOW)]
