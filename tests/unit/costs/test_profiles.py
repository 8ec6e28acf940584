import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.simulation.reading import shipped_profile
from outrider.contracts.cost import ROW_BUCKETS, LinearCostModel, VerifyCost
from outrider.contracts.errors import ConfigError
from outrider.costs.machine import cpu_name_in, hardware_name
from outrider.costs.profiles import (
    WISP_TABLE_12,
    CostProfile,
    ProfiledOn,
    matches,
    parse_profile,
    profile_of,
    read_profile,
    to_json,
)

HERE = ProfiledOn("AMD EPYC 7543", "cpu", 1, "torch", "smollm2", "float32", 2, "2.13.0")
OFFSETS = tuple(0.001 * bucket if bucket in (1, 7, 18) else 0.0 for bucket in range(ROW_BUCKETS))
MODEL = LinearCostModel(4.5e-3, 2e-7, 8e-6, 0.045, OFFSETS, 0.1)
PROFILE = profile_of("here", MODEL, HERE, "2026-01-31", {"test_r2": 0.99, "noise_floor_mape": None})


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(to_json(PROFILE), encoding="utf-8")
    assert read_profile(file) == PROFILE
    assert read_profile(file).model == MODEL
    assert dict(PROFILE.row_offsets_s) == {"1": 0.001, "7": 0.007, "33-64": pytest.approx(0.018)}


def test_table_12_is_shipped_and_fits_no_machine() -> None:
    profile = shipped_profile(WISP_TABLE_12)
    assert profile.model == LinearCostModel(3.314e-5, 3.45e-8, 4.62e-6, 0.01486)
    assert profile.model.predict_s([VerifyCost(100, 0)]) == pytest.approx(0.01486 + 3.314e-3 + 3.45e-4)
    reason = matches(profile, profile.profiled_on)
    assert reason is not None
    assert "published" in reason
    with pytest.raises(ConfigError, match=f"cost profile needs one of .*{WISP_TABLE_12}.*, found 'table_13'"):
        shipped_profile("table_13")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "other"),
        ("dtype", "bfloat16"),
        ("engine", "vllm"),
        ("device", "cuda"),
        ("hardware", "Xeon"),
        ("threads", 2),
    ],
)
def test_a_profile_of_another_machine_is_refused_with_the_reason(field: str, value: str | int) -> None:
    assert matches(PROFILE, HERE) is None
    other = ProfiledOn(**{**{name: getattr(HERE, name) for name in HERE.__slots__}, field: value})
    reason = matches(PROFILE, other)
    assert reason is not None
    assert f"needs {field} {getattr(HERE, field)!r}, found {value!r}" in reason


def test_a_gpu_cares_for_no_threads_and_no_engine_for_its_version() -> None:
    gpu = ProfiledOn("H200", "cuda", 1, "torch", "smollm2", "float32")
    profile = profile_of("gpu", MODEL, gpu, "2026-01-31", {})
    assert matches(profile, ProfiledOn("H200", "cuda", 8, "torch", "smollm2", "float32", 64, "9.9")) is None


def broken(**changes: object) -> str:
    return json.dumps({**json.loads(to_json(PROFILE)), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cost profile needs valid JSON"),
        (broken(seconds_per_token=-1.0), r"seconds_per_token needs a number in \[0, 1000\], found -1"),
        (broken(seconds_per_batch="x"), "seconds_per_batch needs a number"),
        (broken(schema_version=2), "schema_version needs 1, the one this version reads; .*, found 2"),
        (broken(row_offsets_s={"33": 0.1}), "row_offsets_s.33 needs rows as in"),
        (broken(shape=1), "needs known keys .*, found 'shape'"),
        (broken(profiled_on={}), "profiled_on.hardware needs non-empty text"),
    ],
)
def test_what_is_no_profile_is_refused_by_field_and_file(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse_profile(text, "somewhere.json")
    assert "in somewhere.json" in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cost profile needs a readable JSON file, found .*missing\.json"):
        read_profile(tmp_path / "missing.json")


def test_a_profile_without_offsets_is_equation_19_as_printed() -> None:
    plain = LinearCostModel(1.0, 0.0, 0.0, 2.0)
    profile: CostProfile = profile_of("plain", plain, HERE, "2026-01-31", {})
    assert profile.model == plain


def test_this_machine_has_a_name() -> None:
    assert cpu_name_in("processor : 0\nmodel name\t: AMD  EPYC 7543\nflags: x") == "AMD EPYC 7543"
    assert cpu_name_in("flags: x") is None
    assert hardware_name("cpu")


def test_a_model_spread_over_several_devices_runs_on_other_hardware() -> None:
    one, two = (replace(HERE, hardware=hardware_name("cpu", devices)) for devices in (1, 2))
    assert matches(replace(PROFILE, profiled_on=one), one) is None
    reason = matches(replace(PROFILE, profiled_on=one), two)
    assert reason is not None
    assert f"found '2 x {one.hardware}'" in reason
