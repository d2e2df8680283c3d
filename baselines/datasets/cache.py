"""Arrays on disk, written once and memory-mapped by every process.

A cache file is an uncompressed ``.npz``, a zip archive with sizes and a checksum for every array. It is
written beside its place and then moved there, so nobody sees half a file. It is checked before use (all of
it unless ``whole=False``), and built anew if damaged. Arrays of bytes (images) are memory-mapped: the
processes of a machine share one copy.
"""

import hashlib
import logging
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

logger = logging.getLogger("flwr.datasets")
FOLDER = "florilegium-cache"
Arrays = dict[str, Tensor]
DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, NotImplementedError)


def load_cached(
    name: str,
    settings: object,
    root: Path,
    sources: Sequence[Path],
    build: Callable[[], Mapping[str, np.ndarray]],
    *,
    whole: bool = True,
    has_fallback: bool = True,
) -> Arrays:
    """Return what ``build`` returns, as tensors; from the cache if that is up to date.

    The file is kept in ``root``, or in the user's own cache folder if ``root`` is not writable; without
    ``has_fallback`` it is then not kept.

    Parameters
    ----------
    name : of the data set, in the file's name
    settings : whatever decides the content besides the sources; compared by its ``repr``
    root : the data folder
    sources : the arrays' source files and folders; if the size or a time of a file changes, the arrays are
        built anew
    build : makes the arrays
    whole : check every byte before use; False checks only the archive's directory, which is written last
    """
    digest = _hash(str(root.resolve()), repr(settings))
    folders = _folders(root) if has_fallback else [root / FOLDER]
    files = [folder / f"{name}-{digest}.npz" for folder in folders]
    before = stamp(sources)
    for file in files:
        arrays = _read(file, before, whole)
        if arrays is not None:
            return arrays
    built = build()
    if (after := stamp(sources)) != before:  # downloaded, or replaced while they were read
        before, built = after, build()
    for file in files:
        try:
            _write(file, before, built)
        except OSError as error:
            logger.debug("%s: %s", file, error)
            continue
        arrays = _read(file, before, whole)
        if arrays is not None:
            return arrays
    tried = " nor ".join(str(file.parent) for file in files)
    logger.warning("neither %s can be written: every process keeps its own copy of %s", tried, name)
    return {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in built.items()}


def own_folder() -> Path:
    """Return the user's own folder, for data from a package, or for read-only data folders."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "florilegium"


def _folders(root: Path) -> list[Path]:
    """Return the possible cache folders, the best first; a read-only data folder is not used."""
    own = own_folder() / FOLDER
    if root.exists() and not root.stat().st_mode & 0o222:  # the superuser could write there
        return [own]
    return list(dict.fromkeys([root / FOLDER, own]))


def stamp(sources: Sequence[Path]) -> str:
    """Return a hash of the names, sizes and times of all source files.

    A file's last time is that of its replacement, even by one with the same size and time of change.
    """
    stats = [(path, path.stat()) for source in sources for path in files_in(source)]
    return _hash(*(f"{path} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}" for path, one in stats))


def files_in(source: Path) -> Iterator[Path]:
    """Yield a file itself, or the files of a folder in order, links followed; none of a cache."""
    if source.is_dir():
        yield from _files_below(str(source), frozenset({os.path.realpath(source)}))
    elif source.is_file():
        yield source


def _files_below(folder: str, above: frozenset[str]) -> Iterator[Path]:
    """Yield a folder's files; ``above`` are the folders around it, to which a link may lead back."""
    names: list[str] = []
    with suppress(OSError):  # whoever reads the source reports this
        names = sorted(os.listdir(folder))
    for path in (os.path.join(folder, name) for name in names if name != FOLDER):
        if os.path.isfile(path):
            yield Path(path)
        elif os.path.isdir(path) and (place := os.path.realpath(path)) not in above:
            yield from _files_below(path, above | {place})


def _hash(*parts: str) -> str:
    text = "\n".join(parts)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _write(file: Path, before: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays to a temporary file beside ``file`` and move it there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder, file.name)
        with open(fresh, "w+b") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
            with zipfile.ZipFile(stream, "a") as archive:
                archive.comment = before.encode()
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, file)


def _read(file: Path, before: str, whole: bool) -> Arrays | None:
    """Return the file's arrays; None if it is missing, outdated or damaged."""
    try:
        with open(file, "rb") as stream, zipfile.ZipFile(stream) as archive:
            if archive.comment != before.encode():
                return None
            if whole and (damaged := archive.testzip()):
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
            members = archive.infolist()
            return {info.filename.removesuffix(".npy"): _tensor(stream, info) for info in members}
    except FileNotFoundError:
        return None
    except DAMAGE_ERRORS as error:
        logger.warning("the cache file %s is damaged (%s): it is not used", file, error)
        return None


def _tensor(stream: BinaryIO, info: zipfile.ZipInfo) -> Tensor:
    """Return one array of the archive: bytes as a memory map, anything else as a copy."""
    stream.seek(info.header_offset + 26)  # the local header's lengths of name and extra field
    lengths = stream.read(4)
    skip = int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    stream.seek(skip, os.SEEK_CUR)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"{info.filename} is not in NPY format 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype == np.uint8 and not fortran_order and info.file_size:
        # Copy on write: accidental changes stay in this process.
        return torch.from_numpy(np.memmap(stream, dtype, "c", stream.tell(), shape))
    values = np.frombuffer(stream.read(dtype.itemsize * int(np.prod(shape))), dtype)
    return torch.from_numpy(values.reshape(shape, order="F" if fortran_order else "C").copy())
