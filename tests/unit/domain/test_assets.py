"""What people write for an asset: a name, a version of it, or a digest."""

from __future__ import annotations

import pytest

from tuner_service.domain.assets import MAX_VERSION, AssetReference, AssetVersion, is_asset_name, parse_reference

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize("text", ["a", "cifar-10", "Model_v2.1", "9lives", "a" * 100])
def test_letters_digits_and_a_few_signs_are_a_name(text: str) -> None:
    assert is_asset_name(text) is True


def test_a_version_is_written_as_it_is_asked_for() -> None:
    assert str(AssetVersion(name="cifar", version=3, asset_id=DIGEST, at=0.0)) == "cifar@3"
    assert parse_reference("cifar@3") == AssetReference(name="cifar", version=3)


@pytest.mark.parametrize("text", ["", "-a", ".a", "a b", "ä", "a" * 101, "a@1", "versions", "store", DIGEST])
def test_what_is_a_path_of_the_api_or_a_digest_is_no_name(text: str) -> None:
    assert is_asset_name(text) is False


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("cifar", AssetReference(name="cifar")),
        ("cifar@latest", AssetReference(name="cifar")),
        ("cifar@3", AssetReference(name="cifar", version=3)),
        (f"cifar@{MAX_VERSION}", AssetReference(name="cifar", version=MAX_VERSION)),
        (DIGEST, AssetReference(digest=DIGEST)),
        (f"sha256:{DIGEST}", AssetReference(digest=DIGEST)),
        ("deadbeef", AssetReference(name="deadbeef", digest="deadbeef")),
    ],
)
def test_a_reference_names_a_version_or_a_digest(text: str, reference: AssetReference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "@1", "a@", "a@0", "a@01", "a@x", "a@-1", f"a@{MAX_VERSION + 1}", "a@1@2", "é"])
def test_what_names_nothing_is_no_reference(text: str) -> None:
    assert parse_reference(text) is None
