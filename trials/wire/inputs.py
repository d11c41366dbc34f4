"""What a trial is given the paths of: datasets, models, and what earlier trials left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

INPUTS_LIMIT = 100  # parameters of an experiment that hold paths
INPUT_ITEMS_LIMIT = 1_000  # paths in one of them
SHORT_DIGEST = 12  # digits by which people are shown an asset


class InputField(StrEnum):
    """The field of the experiment file that names it."""

    DATASETS = "datasets"
    MODELS = "models"
    PRETRAINED_FROM = "pretrained_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputItem:
    """One path. Either an asset by its digest, or a ``reference``: a path that is used where it is.

    ``inside``: of an asset, the file whose path is given in place of that of the whole tree. ``label`` is for people.
    """

    asset: str = ""
    reference: str = ""
    inside: str = ""
    label: str = ""

    @property
    def shown(self) -> str:
        """Name and short digest."""
        if not self.asset:
            return f"{self.reference} (by reference)"
        digest = f"sha256:{self.asset[:SHORT_DIGEST]}"
        return f"{self.label} ({digest})" if self.label else digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What arrives as one parameter: a path, or a list of them."""

    field: InputField
    items: tuple[InputItem, ...]
    is_list: bool = False

    @property
    def shown(self) -> str | list[str]:
        shown = [item.shown for item in self.items]
        return shown if self.is_list else shown[0]
