"""A program that reads or writes a file as it is told: io.py read|write|mmap FILE [--key value].."""
import argparse
import mmap
import os
import random
import time

UNITS = {"k": 1 << 10, "m": 1 << 20}


def size(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


words = argparse.ArgumentParser()
words.add_argument("what", choices=["read", "write", "mmap"])
words.add_argument("file")
words.add_argument("--block", type=size, default=65536)
words.add_argument("--bytes", type=size, default=0, help="in all; 0: as long as the file is")
words.add_argument("--order", choices=["seq", "random"], default="seq")
words.add_argument("--direct", action="store_true")
words.add_argument("--flags", default="", help="of open, for example O_DSYNC")
words.add_argument("--advise", default="", help="as posix_fadvise and madvise call it, for example RANDOM")
words.add_argument("--pause-ms", type=float, default=0)
words.add_argument("--fsync", type=int, default=0, help="writes between syncs")
words.add_argument("--passes", type=int, default=1)
words.add_argument("--seed", type=int, default=1)
words.add_argument("--seconds", type=float, default=0, help="again and again, so long")
of = words.parse_args()

flags = {"read": os.O_RDONLY, "mmap": os.O_RDONLY, "write": os.O_WRONLY | os.O_CREAT}[of.what]
for name in filter(None, of.flags.split(",")):
    flags |= getattr(os, name)
fd = os.open(of.file, flags | (os.O_DIRECT if of.direct else 0), 0o644)
length = os.fstat(fd).st_size
total = of.bytes or length
blocks = max(1, (min(total, length) if of.what != "write" else total) // of.block)
if of.order == "random" and of.what != "write":
    blocks = max(1, length // of.block)
rng = random.Random(of.seed)
buffer = mmap.mmap(-1, of.block)
buffer.write(rng.randbytes(of.block))
view = None
if of.what == "mmap":
    view = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    if of.advise:
        view.madvise(getattr(mmap, f"MADV_{of.advise}"))
elif of.advise:
    os.posix_fadvise(fd, 0, 0, getattr(os, f"POSIX_FADV_{of.advise}"))
end = time.monotonic() + of.seconds
seen = 0
for turn in range(of.passes if not of.seconds else 1 << 30):
    for nr in range(max(1, total // of.block)):
        at = (rng.randrange(blocks) if of.order == "random" else nr % blocks) * of.block
        if of.what == "read":
            os.preadv(fd, [buffer], at)
        elif of.what == "write":
            os.pwritev(fd, [buffer], at)
            if of.fsync and (nr + 1) % of.fsync == 0:
                os.fdatasync(fd)
        else:
            seen += sum(view[at : at + of.block : 4096])
        if of.pause_ms:
            time.sleep(of.pause_ms / 1000)
        if of.seconds and time.monotonic() > end:
            break
    if of.seconds and time.monotonic() > end:
        break
os.close(fd)
