"""What a trial left, made an asset: what an agent has staged is committed, and then told to the dispatcher."""

from __future__ import annotations

from trials.wire.outputs import OutputOffered
from tuner_service.domain.assets import AssetKind
from tuner_service.domain.errors import TunerServiceError
from tuner_service.domain.trial import TrialOutput
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.assets.uploads import NewAsset, manifest_file

MESSAGE_LIMIT = 1_000  # characters of what is missing


async def take_in(assets: Assets, offered: OutputOffered) -> tuple[TrialOutput | None, TunerServiceError | None]:
    """The output, or the error for which the agent tries again. Harmless to repeat, also while it is under way."""
    message = offered.message[:MESSAGE_LIMIT]
    attempt = offered.key.attempt
    if not offered.pieces:
        return TrialOutput(attempt=attempt, asset="", is_complete=False, message=message, step=offered.step), None
    try:
        manifest = manifest_file(size=offered.size, pieces=offered.pieces)
        new = NewAsset(manifest=manifest, kind=AssetKind.OUTPUT, name=None, kept=False)
        asset, _, _ = await assets.uploads.commit_in_turn(new)
    except TunerServiceError as error:
        return None, error
    output = TrialOutput(
        attempt=attempt,
        asset=asset.id,
        size=asset.size,
        files=asset.files,
        is_complete=offered.is_complete,
        message=message,
        step=offered.step,
    )
    return output, None
