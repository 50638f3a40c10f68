"""Programs that try to escape the sandbox or its limits. Each prints its results as one JSON value."""

from __future__ import annotations

PRELUDE = """
import ctypes, errno, json, os, platform, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
is_x86 = platform.machine() == "x86_64"

def call(number, *args):
    ctypes.set_errno(0)
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    got = libc.syscall(ctypes.c_long(number), *given)
    return got if got != -1 else errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())

def tried(work, *args):
    try:
        return ["could", repr(work(*args))]
    except (OSError, AttributeError) as error:
        return errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)
"""

# system calls by number: those of attacks on mounts; namespaces; memory that no limit counts; other processes
# (the numbers are those of x86_64)
MOUNTS = [165, 155, 161, 166, 428, 429, 430, 431, 432, 433, 442, 467, 272, 308]
MEMORY = [29, 30, 31, 64, 68, 240, 319, 447, 206, 253, 254, 294, 300, 279, 237, 238]
PROCESSES = [
    101,
    129,
    297,
    424,
    434,
    438,
    310,
    311,
    312,
    200,
    141,
    144,
    203,
    314,
    251,
    317,
    126,
    105,
    106,
    114,
    117,
    119,
]
KERNEL = [
    321,
    298,
    323,
    425,
    426,
    427,
    248,
    249,
    250,
    135,
    154,
    175,
    313,
    246,
    169,
    103,
    172,
    173,
    212,
    304,
    444,
    445,
    446,
]

BY_NUMBER = "print(json.dumps({number: call(number, *[0] * 6) for number in NUMBERS}))"

ESCAPE = """
got = {"open_tree_attr": call(467, -100, b"/usr/lib", 0x8001, ctypes.create_string_buffer(32), 32)}
found = [each for each in sys.path if os.path.isdir(each)]
got["folders"] = len(found)
for folder in found:
    name = os.path.join(folder, "sitecustomize.py")
    some = next(os.path.join(folder, each) for each in sorted(os.listdir(folder)))
    got[folder] = [
        tried(open, name, "w"), tried(os.mkdir, name), tried(os.symlink, "/jail", name), tried(os.chmod, folder, 0o777),
        tried(os.rename, some, some + "x"), tried(os.utime, some), tried(os.open, some, os.O_RDWR | os.O_TRUNC),
        tried(os.link, some, "/jail/link"), tried(os.setxattr, some, "user.x", b"x"), tried(os.chown, some, 1000, 1000),
    ]
got["elsewhere"] = [tried(open, os.path.join(each, "x"), "w") for each in ("/", "/usr", "/lib", "/etc", "/dev")]
print(json.dumps(got))
"""

SIGNALS = """
import fcntl
reads, writes = os.pipe()
got = {
    "own": tried(fcntl.fcntl, reads, 8, os.getppid()), "signal": tried(fcntl.fcntl, reads, 10, 9),
    "own_ex": tried(fcntl.fcntl, reads, 15, b"\\0" * 8), "lease": tried(fcntl.fcntl, reads, 1024, 0),
    "pipe size": tried(fcntl.fcntl, reads, 1031, 1 << 20), "fiosetown": tried(fcntl.ioctl, reads, 0x8901, b"\\0" * 8),
    "terminal": tried(fcntl.ioctl, 0, 0x5412, b"x"),
}
for pid in (0, 1, -1, WORKER, -WORKER):
    for number in (0, 2, 9, 15, 19):
        got[f"kill {pid} {number}"] = tried(os.kill, pid, number)
    got[f"prlimit {pid}"] = call(302 if is_x86 else 261, pid, 0, ctypes.create_string_buffer(16), 0) if pid else "EPERM"
    got[f"affinity {pid}"] = tried(os.sched_setaffinity, max(pid, 1), {0})
print(json.dumps(got))
"""

PROCESS = """
clone = 56 if is_x86 else 220
flags = (17, 0x11, 0x10000011, 0x20000000, 0x00020000, 0x10900 | 0x10000000, 0x10900 | 0x80, 0x10900 | 0x2000, 0x100)
got = {"clone": [call(clone, each, 0, 0, 0, 0) for each in flags], "clone3": call(435, ctypes.create_string_buffer(88), 88)}
got["fork"] = [tried(os.fork), tried(os.execv, sys.executable, ["x"]), tried(os.posix_spawn, "/bin/true", ["x"], {})]
got["x32"] = [call(0x40000000 + each, 0, 0, 0, 0, 0, 0) for each in range(600)]
print(json.dumps(got))
"""

STATE = """
header = ctypes.create_string_buffer(b"\\x22\\x05\\x08\\x20" + bytes(4), 8)
print(json.dumps({"ids": [os.getuid(), os.getgid(), os.getpid(), os.getppid()], "host": os.uname().nodename,
                  "capget": call(125 if is_x86 else 90, header, ctypes.create_string_buffer(24)),
                  "root": sorted(os.listdir("/")), "files": tried(os.dup, 3), "proc": os.path.exists("/proc")}))
"""

FILES = """
made = 0
try:
    while made < 100_000:
        HOW
        made += 1
except OSError as error:
    print(json.dumps([made, errno.errorcode[error.errno]]))
"""
FOLDERS = FILES.replace("HOW", 'os.mkdir(f"/tmp/{made}")')
DEEP = FILES.replace("HOW", 'os.mkdir("x"); os.chdir("x")')
LINKS = FILES.replace("HOW", 'os.symlink("x" * 4000, f"/jail/{made}")')
HARD_LINKS = "open('/jail/file', 'w').close()\n" + FILES.replace("HOW", 'os.link("/jail/file", f"/jail/{made}")')
BYTES = FILES.replace("HOW", 'open(f"/tmp/{made}", "wb").write(b"x" * 100_000)')
PIPES = FILES.replace("HOW", "os.pipe()")
# Threads with their own tables of open files, each with its own limit.
FILE_TABLES = """
made, opened, barrier = [], [], threading.Barrier(4)
clone = 56 if is_x86 else 220
def work():
    made.append(call(436, 1000, 0xFFFFFFFF, 2))
    barrier.wait()
    try:
        while True:
            opened.append(os.dup(1))
    except OSError:
        barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
ordinary = [call(436, 1000, 1001, flags) for flags in (0, 4)]
print(json.dumps([made, [call(clone, each, 0, 0, 0, 0) for each in (0x10900, 0x10B00, 0x3D0B00)], ordinary, len(opened)]))
"""
THREADS = """
import time
end, made = threading.Event(), 0
threading.stack_size(64 * 1024)
try:
    while made < 10_000:
        threading.Thread(target=end.wait, daemon=True).start()
        made += 1
except RuntimeError as error:
    print(json.dumps([made, str(error)]))
end.set()
"""

INSTALLED = """
print(json.dumps([folder for folder in FOLDERS if os.path.isdir(folder) and os.listdir(folder)]))
"""

CERTIFICATES = """
print(json.dumps([sorted(os.listdir("/etc/ssl")), [each for each in EXPECTED if not os.path.exists(each)]]))
"""

SOCKETS = """
import socket
kinds = [(1, 1, 0), (1, 2, 0), (16, 3, 0), (17, 3, 0), (40, 1, 0), (2, 3, 1), (2, 1, 262), (2, 1, 132), (38, 5, 0), (3, 5, 0)]
got = [tried(socket.socket, *kind) for kind in kinds]
got += [tried(socket.socketpair, socket.AF_UNIX, each) for each in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)]
one, other = socket.socketpair()
one.send(b"x")
got.append(other.recv(1).decode())
print(json.dumps(got))
"""

# Pages that lie a gigabyte apart: each takes pages of page tables, which no resource limit counts.
PAGE_TABLES = """
map_at = libc.mmap
map_at.restype, map_at.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for gigabyte in range(1, 60_000):
    place = (gigabyte << 30) - 4096
    if map_at(place, 8192, 1, 0x100022, -1, 0) == place:
        ctypes.string_at(place, 1), ctypes.string_at(place + 4096, 1)
print(1)
"""

# Ordinary programs have to work.
ORDINARY = """
import asyncio, concurrent.futures, datetime, shutil, sqlite3, subprocess, tempfile, zoneinfo
async def later():
    await asyncio.sleep(0.001)
    return await asyncio.to_thread(lambda: 7)
got = {"asyncio": asyncio.run(later())}
database = sqlite3.connect("/tmp/x.db")
database.execute("create table t as select 1 as a")
database.commit()
got["sqlite"] = database.execute("select a from t").fetchall()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    got["threads"] = list(pool.map(lambda x: x * x, range(5)))
open("a", "w").write("hi")
shutil.copy2("a", "/tmp/b")
shutil.copytree("/tmp", "c")
shutil.make_archive("/jail/z", "zip", "c")
shutil.move("/tmp/b", "d")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
got["files"] = sorted(os.listdir())
got["zone"] = datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Oslo")).utcoffset().seconds
got["process"] = tried(subprocess.run, ["/bin/true"])
print(json.dumps(got))
exit()
"""

I386 = """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid, as a program of the 32-bit architecture calls it
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""

# Left out are calls that end or stop the process itself, and uretprobe and uprobe (335, 336), which no filter sees: SIGILL is all they do.
FUZZ = """
import random
choose = random.Random(SEED)
buffer = ctypes.create_string_buffer(1 << 16)
values = [0, 1, 2, 3, 8, 4096, -1, -100, 0x7FFFFFFF, 1 << 31, (1 << 63) - 1, ctypes.addressof(buffer), 0x10000000, WORKER, os.getppid()]
ends = {0, 15, 34, 60, 61, 62, 93, 94, 101, 128, 130, 133, 139, 202, 219, 231, 234, 247, 7, 23, 35, 230, 232, 270, 271, 281, 335, 336}
numbers = [each for each in range(700) if each not in ends] + [0x40000000 + each for each in range(600)]
choose.shuffle(numbers)
done = 0
for number in numbers:
    call(number, *[choose.choice(values) for _ in range(6)])
    done += 1
print(json.dumps(done))
"""
