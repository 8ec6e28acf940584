"""What is the onnx engine's own: rows of KV, passes over neighbours, and the blocks it refuses."""

import random
from pathlib import Path

import pytest

from outrider.contracts.drafting import Draft
from outrider.contracts.errors import ContextTooLongError, ParameterError, UnsupportedBlockError
from outrider.engines.limits import EngineLimits
from outrider.engines.onnx import model
from outrider.engines.onnx.engine import OnnxDrafter
from outrider.engines.onnx.export import export_drafter
from outrider.engines.onnx.exported import KvShape
from outrider.engines.onnx.kv_rows import KvRow, KvRows
from outrider.protocols.registry import PROTOCOLS
from tests.unit.engines.conftest import loaded, onnx_drafter, tiny_llama
from tests.unit.engines.drafter_device import GREEDY, SAMPLED, TERMS, Device, answers_of, draft_of

SHAPE = KvShape(layers=1, heads=2, width=4)


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "token_ids"])
def test_other_protocols_are_refused_by_name(protocol: str) -> None:
    engine, device = onnx_drafter(tiny_llama()), Device("a", GREEDY, protocol=protocol)
    engine.open(device.opening(), TERMS)
    with pytest.raises(UnsupportedBlockError, match="found onnx, which drafts chains of token_ids"):
        engine.submit(device.request(3))
    assert not engine.busy


@pytest.mark.parametrize("asked", [{"expansion": (2, 1)}, {"rows": 4, "window": 3}, {"want_hidden": True, "window": 1}])
def test_trees_and_hidden_states_are_refused(asked: dict[str, object]) -> None:
    engine, device = onnx_drafter(tiny_llama()), Device("a", GREEDY)
    engine.open(device.opening(), TERMS)
    with pytest.raises(UnsupportedBlockError, match=r"needs an engine with (token trees|hidden states), found onnx"):
        engine.submit(device.request(**asked))  # type: ignore[arg-type]  # by name
    assert draft_of(engine, device.request(3)).token_ids == device.truth(3), "nothing has changed"


def test_company_and_scarce_memory_do_not_change_a_draft() -> None:
    engine, rng = onnx_drafter(tiny_llama(), blocks=3 * 64), random.Random(2)  # of rows of 256 positions three
    devices = [
        Device(f"d{i}", SAMPLED if i % 2 else GREEDY, tuple(rng.randrange(97) for _ in range(rng.randint(5, 40))))
        for i in range(6)
    ]
    for device in devices:
        engine.open(device.opening(), TERMS)
    for _ in range(4):
        expected = {}
        for device in rng.sample(devices, 4):
            window = rng.randint(0, 6)
            expected[device.name] = device, device.truth(window)
            engine.submit(device.request(window))
        answers = answers_of(engine)
        for name, (device, truth) in expected.items():
            answer = answers[name]
            assert isinstance(answer, Draft)
            assert answer.token_ids == truth
            device.tokens += [*answer.token_ids[: rng.randint(0, 3)], rng.randrange(97)]
    assert engine.usage().evictions > 0
    for device in devices:
        engine.close(device.name)
    assert (engine.usage().used_blocks, engine.usage().generations) == (0, 0)


def test_a_budget_bounds_texts_and_too_small_a_one_is_refused() -> None:
    engine, device = onnx_drafter(tiny_llama(), blocks=64), Device("a", GREEDY, tuple(range(90)) * 3)
    assert engine.max_context_tokens == 256
    with pytest.raises(ContextTooLongError, match="raise the drafter group's KV budget"):
        engine.open(device.opening(), TERMS)
    with pytest.raises(ParameterError, match="256 positions"):
        onnx_drafter(tiny_llama(), blocks=63)


def test_rows_grow_and_keep_what_is_computed() -> None:
    kv = KvRows(SHAPE, 4096 * SHAPE.token_bytes, 4096)
    rows = [kv.open() for _ in range(5)]
    for number, row in enumerate(rows):
        assert kv.reserve(row, 100, ())
        assert row.index is not None
        kv.buffers[0][row.index, :, :100] = number + 1
        row.computed_tokens = 100
    assert kv.reserve(rows[4], 1000, set(rows[3:]))  # four rows of 1024: the one unused for longest makes room
    assert (kv.length, [row.index is None for row in rows]) == (1024, [True, False, False, False, False])
    for number, row in enumerate(rows[1:], 2):
        assert (kv.buffers[0][row.index, :, :100] == number).all()
    assert not kv.reserve(rows[0], 4096, {rows[4]}), "the budget is one such row, and another keeps its"
    assert kv.reserve(rows[0], 4096, ())
    assert sum(buffer.nbytes for buffer in kv.buffers) <= 4096 * SHAPE.token_bytes
    kv.close(rows[0])
    assert kv.reserve(rows[1], 5, ())
    assert kv.length == 256, "rows are short again once none is held"


def test_rows_shrink_when_one_more_is_needed() -> None:
    """While some are held: else one long text would leave the others few rows until all have ended."""
    kv = KvRows(SHAPE, 4096 * SHAPE.token_bytes, 4096)
    long, *short = (kv.open() for _ in range(9))
    assert kv.reserve(long, 2048, ())
    assert kv.reserve(short[0], 100, {long})
    kv.buffers[0][short[0].index, :, :100] = 7
    short[0].computed_tokens = 100
    kv.close(long)
    for row in short:
        assert kv.reserve(row, 100, set(short))
        row.computed_tokens = 100
    assert kv.length == 256
    assert len({row.index for row in short}) == 8
    assert (kv.buffers[0][short[0].index, :, :100] == 7).all()
    assert sum(buffer.nbytes for buffer in kv.buffers) <= 4096 * SHAPE.token_bytes


def test_few_bindings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_MOST_BINDINGS", 2)
    engine = onnx_drafter(tiny_llama())
    devices = [Device(f"d{i}", GREEDY) for i in range(4)]
    for device in devices:
        engine.open(device.opening(), TERMS)
        assert draft_of(engine, device.request(3)).token_ids == device.truth(3)
    assert 0 < len(vars(vars(engine)["_model"])["_bindings"]) <= 2


def test_a_step_computes_as_many_positions_as_the_limits_say(tmp_path: Path) -> None:
    export_drafter(loaded(tiny_llama()), tmp_path / "drafter.onnx", quantise=False)
    for tokens, steps in ((8, 5), (128, 1)):
        limits = EngineLimits(2**24, prefill_chunk_tokens=tokens)
        engine = OnnxDrafter(model.OnnxModel(tmp_path / "drafter.onnx", 1), limits)
        device, taken = Device("a", GREEDY, tuple(range(1, 42))), 0
        engine.open(device.opening(), TERMS)
        engine.submit(device.request(1))
        while engine.busy:
            taken += 1
            engine.step()
        assert taken == steps


def test_neighbours_are_computed_together_and_full_rows_are_not_written() -> None:
    kv = KvRows(SHAPE, 4096 * SHAPE.token_bytes, 256)
    rows = [kv.open() for _ in range(8)]
    assert all(kv.reserve(row, 10, ()) for row in rows)
    assert kv.spans([0, 1, 3, 6, 7]) == [range(4), range(6, 8)]
    rows[2].computed_tokens = 256
    assert kv.spans([7, 0, 1, 3]) == [range(2), range(3, 4), range(7, 8)]
    assert KvRow(1) != KvRow(1), "rows are themselves"
