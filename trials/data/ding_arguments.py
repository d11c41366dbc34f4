"""How scripts for DI-engine call its loader: ``(data_source, batch_size, device, chunk_size, collate_fn, …)``."""

from __future__ import annotations

from typing import Any


def as_torch_calls(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of the loader by their names here, whichever of the two ways it was written in.

    TypeError says what to write where it is neither.
    """
    is_source = _names_device(given["shuffle"])
    dataset = _the_dataset(given["dataset"], given["data_source"], is_source=is_source)
    if not is_source:
        return {**given, "dataset": dataset, "shuffle": bool(given["shuffle"])}
    names = ("device", "chunk_size", "collate_fn")
    placed = dict(zip(names, (given["shuffle"], given["sampler"], given["batch_sampler"]), strict=True))
    chosen = _by_position(placed, {name: given[name] for name in names})
    return {**given, **chosen, "dataset": dataset, "shuffle": False, "sampler": None, "batch_sampler": None}


def _names_device(value: Any) -> bool:
    """Whether what stands where torch has ``shuffle`` is a device: its name, or a ``torch.device``."""
    return isinstance(value, str) or (type(value).__name__ == "device" and type(value).__module__ == "torch")


def _the_dataset(dataset: Any, data_source: Any, *, is_source: bool) -> Any:
    """TypeError unless it is given once, and for a dict, which DI-engine's loader takes as data by itself.

    ``is_source``: the call is DI-engine's.
    """
    if dataset is not None and data_source is not None:
        raise TypeError("dataset and data_source are two names of one thing: give one of them")
    found = data_source if dataset is None else dataset
    if found is None:
        raise TypeError("AsyncDataLoader needs dataset=…, or data_source=… as DI-engine calls it")
    if isinstance(found, dict) and (is_source or data_source is not None):
        raise TypeError(
            "a dict is no data source: write a function that is asked with batch_size and returns a list of samples, "
            "or give the samples themselves as dataset=[…]"
        )
    return found


def _by_position(placed: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call with a device in third place. TypeError for one that is given twice, by its place and by
    its name, and for torch's sampler in DI-engine's places."""
    chunk_size, collate_fn = placed["chunk_size"], placed["collate_fn"]
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise TypeError(
            f"after a device in third place comes DI-engine's chunk_size, a number, not {chunk_size!r}; with a "
            "sampler, write torch's arguments by name: AsyncDataLoader(dataset, batch_size, sampler=…, device=…)"
        )
    if collate_fn is not None and not callable(collate_fn):
        raise TypeError(f"after chunk_size comes DI-engine's collate_fn, a function, not {collate_fn!r}")
    for name, value in placed.items():
        if value is not None and named[name] is not None:
            raise TypeError(f"{name} is given twice, by its place and by its name")
    return {name: named[name] if value is None else value for name, value in placed.items()}
