import pytest
import torch

from outrider.sampling.device_tensors import Readback
from tests.unit.engines.watching import watched


def test_the_watch_sees_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    row, readback = torch.arange(4.0), Readback()
    readback.add(row)
    with watched(monkeypatch) as watch:
        assert row[row > 1].tolist() == [2.0, 3.0]
        readback.read()
        Readback().read()
    assert watch.waits == ["aten.index.Tensor", "tolist"]
    assert watch.reads == 1
