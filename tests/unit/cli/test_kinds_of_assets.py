"""Which kinds of assets the command line lists, and which it adds."""

from __future__ import annotations

import pytest

from tuner_service.cli.main import build_parser
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.verbs import asset
from tuner_service.domain.assets import AssetKind


@pytest.mark.parametrize("kind", list(AssetKind))
def test_every_kind_is_listed_by_itself(kind: AssetKind) -> None:
    typed = build_parser().parse_args(["asset", "ls", "--kind", kind])
    asset._check(typed)
    assert typed.kind == kind


def test_an_archive_is_made_of_an_experiment_and_not_of_a_folder() -> None:
    typed = build_parser().parse_args(["asset", "add", "data", "--kind", "archive"])
    with pytest.raises(CommandError, match="`tuner archive EXPERIMENT` makes one") as refused:
        asset._check(typed)
    assert refused.value.code is ExitCode.USAGE
