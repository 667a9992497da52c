# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmark of the model holds its worst depth against the limit."""

import pytest

from batchflush.benchmarks import model


@pytest.mark.parametrize(("worst", "good"), [(300.0, True), (300.1, False)])
@pytest.mark.parametrize("depth", model.DEPTHS)
def test_the_worst_depth_counts(depth: int, worst: float, good: bool) -> None:
    told = {f"all_on_depth{d}_ns": 100.0 for d in model.DEPTHS}
    told |= {f"service_depth{d}_ns": 999.0 for d in model.DEPTHS}
    told[f"all_on_depth{depth}_ns"] = worst
    first, *rest = model.numbers(told)
    assert (first.name, first.value, first.good()) == ("model_ns_per_request", worst, good)
    assert all(number.good() for number in rest)
