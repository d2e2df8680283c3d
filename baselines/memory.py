"""How a process treats memory that it has freed."""

import ctypes
import platform
from functools import cache

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of mallopt(3)
NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """Let the process keep what it frees, for the next round's tensors.

    By default the C library returns large blocks to the system and takes them back page by page, which
    costs more than the arithmetic of a server step. Once per process; glibc only, elsewhere nothing
    happens.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, NEVER)
