"""Stop and resume a distillation: parameters, optimiser state and the run's fingerprint, in one file."""

from pathlib import Path
from typing import Any

import torch

from outrider.contracts.errors import ParameterError
from outrider.documents.whole_file import whole_file


def save_checkpoint(
    file: Path,
    fingerprint: dict[str, str],
    done: int,
    loss: float,
    parameters: dict[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Write the state after ``done`` steps; the file appears complete or not at all."""
    state: dict[str, Any] = {"fingerprint": fingerprint, "done": done, "loss": loss}
    values = {name: value.detach() for name, value in parameters.items()}
    with whole_file(file) as partial:
        torch.save({**state, "parameters": values, "optimizer": optimizer.state_dict()}, partial)


def load_checkpoint(
    file: Path,
    fingerprint: dict[str, str],
    parameters: dict[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
) -> tuple[int, float]:
    """Load a checkpoint, if there is one; return the steps done and the loss of the last one.

    One of another run is a ``ParameterError``, whose message names what differs.
    """
    if not file.exists():
        return 0, float("nan")
    state = torch.load(file, weights_only=True)
    differing = sorted(key for key, value in fingerprint.items() if state["fingerprint"].get(key) != value)
    if differing:
        raise ParameterError(
            "resume",
            f"a checkpoint of the same run, or resume off to start again, or {file} deleted",
            f"another {', '.join(differing)}",
        )
    with torch.no_grad():
        for name, value in parameters.items():
            value.copy_(state["parameters"][name])
    optimizer.load_state_dict(state["optimizer"])
    return state["done"], state["loss"]
