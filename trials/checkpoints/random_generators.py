"""States of the random generators that a training script shares with its libraries: as plain JSON values."""

from __future__ import annotations

import base64
import random
import sys
from importlib import import_module
from typing import Any


def capture() -> dict[str, Any]:
    """Of ``random``, and of NumPy's global and torch's generators where those are loaded."""
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"random": [version, list(words), gauss]}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = _plain(numpy.random.get_state(legacy=False))
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = _text(torch.get_rng_state())
        if torch.cuda.is_initialized():
            states["torch_cuda"] = [_text(state) for state in torch.cuda.get_rng_state_all()]
    return states


def put_back(states: dict[str, Any]) -> None:
    """The generators go on exactly where they were; a library that had none then is left alone."""
    version, words, gauss = states["random"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in states:
        import_module("numpy").random.set_state(states["numpy"])
    if "torch" in states:
        torch = import_module("torch")
        torch.set_rng_state(_tensor(torch, states["torch"]))
        devices = states.get("torch_cuda", [])
        if devices and torch.cuda.is_available():
            # Another machine may have fewer devices: those it has go on exactly.
            for index, text in enumerate(devices[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(_tensor(torch, text), index)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _text(state: Any) -> str:
    return base64.b64encode(bytes(state.tolist())).decode()


def _tensor(torch: Any, text: str) -> Any:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).clone()
