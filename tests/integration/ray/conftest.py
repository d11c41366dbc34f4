"""One Ray cluster for all tests of this folder, as new for each: to start one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ray_cluster import RayCluster, ray_cluster

HEAD_LOST_S = 8


@pytest.fixture(scope="package")
def whole_cluster() -> Iterator[RayCluster]:
    """One node of two cores."""
    with ray_cluster(2, head_lost_s=HEAD_LOST_S, clients=True) as found:
        yield found


@pytest.fixture
def cluster(whole_cluster: RayCluster) -> Iterator[RayCluster]:
    """Afterwards the nodes that the test has added are gone, and so is all of ours: the next test counts on room."""
    before = whole_cluster.count()
    yield whole_cluster
    whole_cluster.clear(before)
