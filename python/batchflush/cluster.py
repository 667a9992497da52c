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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from batchflush.errors import BatchflushError

CONNECT_SECONDS = 10

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def cores() -> int:
    return len(os.sched_getaffinity(0))


@contextlib.contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster at an address, such as tcp://127.0.0.1:8786, or of our own cores."""
    # It takes a second to import.
    from distributed import Client, LocalCluster

    for name in ("distributed", "distributed.worker", "distributed.core", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if scheduler is not None:
        try:
            client = Client(scheduler, timeout=CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise BatchflushError(
                f"no Dask scheduler answers at {scheduler}",
                "start one with: build/venv/bin/dask scheduler --host 127.0.0.1",
            ) from error
        with client:
            if not client.ncores():
                raise BatchflushError(f"the Dask scheduler at {scheduler} has no workers")
            yield client
        return
    # Threads are enough: the work is done by processes that they start.
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=cores(), processes=False,
            dashboard_address="127.0.0.1:0", memory_limit=0,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


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
