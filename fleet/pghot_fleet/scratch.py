"""Where a worker keeps files: a folder of its own.

Ray kills its workers, so nothing of theirs runs at their end, and each would leave a copy of `pghot` behind. But the
kernel gives back the locks of who has ended: a folder holds a locked file, and each worker that begins removes those
that nobody has locked. So what stays is of the last workers on a machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import tempfile

from pghot_fleet.runner import FOLDER

#: What their names begin with.
PREFIX = f"{FOLDER}worker-"

_LOCK = "lock"


@functools.cache
def folder() -> pathlib.Path:
    """That of this process, made when it is asked for first."""
    _remove_left()
    path = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
    # It gets its name when it is locked, or a worker that begins now could take the folder for one that was left.
    new = path / "new"
    fcntl.flock(os.open(new, os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_EX)
    new.rename(path / _LOCK)
    return path


def of_task() -> tempfile.TemporaryDirectory[str]:
    """One in it, for as long as a task runs."""
    return tempfile.TemporaryDirectory(prefix=FOLDER, dir=folder())


def _remove_left() -> None:
    """Removes the folders of this user whose process has ended."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
