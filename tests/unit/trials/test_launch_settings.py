"""What an experiment gives its trials: assets known by their digests, shown as people know them."""

from __future__ import annotations

import pytest

from trials.wire.inputs import SHORT_DIGEST, Input, InputField, InputItem
from trials.wire.launch import LaunchSettings, assets_of

ONE, OTHER, CODE = "1" * 64, "2" * 64, "3" * 64


def given(*items: InputItem, is_list: bool = False) -> Input:
    return Input(field=next(iter(InputField)), items=items, is_list=is_list)


def test_the_assets_of_a_launch_are_its_inputs_and_its_code_once_each() -> None:
    inputs = {
        "data": given(InputItem(asset=ONE)),
        "more": given(InputItem(asset=ONE), InputItem(asset=OTHER), InputItem(reference="/mnt/data"), is_list=True),
    }
    settings = LaunchSettings(command=("python", "train.py"), inputs=inputs)

    assert assets_of(settings) == {ONE, OTHER}
    assert assets_of(LaunchSettings(command=("python",), inputs=inputs, code_asset=InputItem(asset=CODE))) == {
        *(ONE, OTHER, CODE)
    }
    assert assets_of(LaunchSettings(command=("python",))) == frozenset()


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (InputItem(asset=ONE), f"sha256:{'1' * SHORT_DIGEST}"),
        (InputItem(asset=ONE, label="cifar@3"), f"cifar@3 (sha256:{'1' * SHORT_DIGEST})"),
        (InputItem(reference="/mnt/data"), "/mnt/data (by reference)"),
    ],
)
def test_an_input_is_shown_by_name_and_short_digest(item: InputItem, shown: str) -> None:
    assert Input(field=next(iter(InputField)), items=(item,)).shown == shown
    assert given(item, is_list=True).shown == [shown]
