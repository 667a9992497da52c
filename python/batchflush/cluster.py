# SPDX-License-Identifier: GPL-2.0-or-later
"""Many independent pieces of work, on this machine's cores or on a Dask cluster.

A function, its argument and its result are pickled, and a worker of a cluster has to have
the project, with what is built, at the same path:

    build/venv/bin/dask worker ADDRESS --nthreads CORES --no-dashboard
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from batchflush import paths
from batchflush.errors import BatchflushError, UsageError

CONNECT_SECONDS = 10
FOLDER = paths.BUILD / "dask"

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def cores() -> int:
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def connected(
    scheduler: str | None, workers: int | None = None, *, processes: bool = False
) -> Iterator[Any]:
    """A client of the cluster at an address, such as tcp://127.0.0.1:8786, or of our own workers.

    workers: how many of our own (default: as many as there are cores). processes: a process for
    each; threads are enough where the work is done by processes that they start.
    """
    # They take a second to import.
    import dask
    from distributed import Client

    FOLDER.mkdir(parents=True, exist_ok=True)
    quiet = {
        "temporary-directory": str(FOLDER),
        "distributed.admin.log-format": "%(message)s",
        "distributed.comm.timeouts.connect": CONNECT_SECONDS,
    }
    for name in ("distributed", "distributed.worker", "distributed.core", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with dask.config.set(quiet), contextlib.ExitStack() as stack:
        if scheduler:
            yield stack.enter_context(_existing(scheduler))
        else:
            cluster = stack.enter_context(_local(workers or cores(), processes))
            yield stack.enter_context(Client(cluster))


def _existing(address: str) -> Any:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(
            f"--scheduler={address} does not answer; allowed is the address of a Dask scheduler, "
            "such as tcp://127.0.0.1:8786"
        ) from error
    if not client.ncores():
        client.close()
        raise BatchflushError(f"--scheduler={address} has no workers")
    return client


def _local(workers: int, processes: bool) -> Any:
    from distributed import LocalCluster

    with _ctrl_c_ignored() if processes else contextlib.nullcontext():
        return LocalCluster(
            n_workers=workers if processes else 1,
            threads_per_worker=1 if processes else workers,
            processes=processes,
            host="127.0.0.1" if processes else None,
            # Any port: another cluster may have the usual one.
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """For the workers that are started: they inherit it, and it is for us to end them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def completed(
    client: Any, function: Callable[[Argument], Result], arguments: Sequence[Argument]
) -> Iterator[Result]:
    """The results, each as soon as it is there."""
    from distributed import as_completed

    futures = [client.submit(function, argument, pure=False) for argument in arguments]
    for future in as_completed(futures):
        yield future.result()
        # Results are not kept in the cluster as well.
        future.release()
