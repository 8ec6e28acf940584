import socket
from pathlib import Path

import pytest

from edge.status import CountingDrafter, StatusLine, Verdicts, tell_systemd
from outrider.drafting.recalibration import ChainVerdict
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx.export import export_drafter
from outrider.engines.onnx.model import OnnxModel
from tests.unit.engines.conftest import loaded, tiny_llama
from tests.unit.engines.drafter_device import GREEDY, TERMS, Device, draft_of


def test_a_line_says_what_was_drafted_since_the_last_and_no_token(tmp_path: Path) -> None:
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx")
    verdicts, now_s, noted = Verdicts(), 0.0, list[ChainVerdict]()

    def note(name: str, verdict: ChainVerdict) -> None:
        noted.append(verdict)
        verdicts.note(name, verdict)

    engine = CountingDrafter(OnnxModel(tmp_path / "drafter.onnx", 1), EngineLimits(2**24), None, note)
    status, device = StatusLine("small", lambda: now_s), Device("a", GREEDY)
    engine.open(device.opening(), TERMS)
    draft = draft_of(engine, device.request(4))
    device.tokens += [*draft.token_ids[:3], draft.token_ids[3] ^ 1]
    draft_of(engine, device.request(4))
    now_s = 2.0
    line = status.line(engine, verdicts, 1, "at a gateway")
    assert line == "small: 1 generations, 4.0 tokens/s, 0.75 accepted, at a gateway"
    assert len({id(features) for features in noted[0].sent_chain.features}) == 1, "no rows are kept for it"
    engine.close("a")
    now_s = 3.0
    line = status.line(engine, verdicts, 0, "dialling")
    assert line == "small: 0 generations, 0.0 tokens/s, none tested, dialling"


def test_the_service_manager_is_told_if_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_systemd("READY=1")
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    tell_systemd("READY=1")  # it has just gone
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        tell_systemd("STATUS=drafting")
        assert manager.recv(100) == b"STATUS=drafting"
