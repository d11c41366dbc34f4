"""One Ray cluster for all tests of this folder: to start one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ray_cluster import RayCluster, ray_cluster

HEAD_LOST_S = 8


@pytest.fixture(scope="package")
def cluster() -> Iterator[RayCluster]:
    """One node of two cores; what a test kills it adds itself."""
    with ray_cluster(2, head_lost_s=HEAD_LOST_S, clients=True) as found:
        yield found
