from collections.abc import Mapping

import pytest

from outrider.config.assigning import Assignment, assign, from_environment, refuse_contradictions
from outrider.config.reading import parse_config
from outrider.config.schema import Config
from outrider.contracts.errors import ConfigError
from tests.budgets import ROOT, product_files

KUBERNETES = {
    "OUTRIDER_GATEWAY_PORT": "tcp://10.0.0.1:8000",
    "OUTRIDER_GATEWAY_PORT_8000_TCP_ADDR": "10.0.0.1",
    "OUTRIDER_SERVICE_HOST": "10.0.0.1",
}


def test_variables_are_read_as_set_reads_values() -> None:
    environment = {
        "OUTRIDER__VERIFIERS__THREADS": "2",
        "OUTRIDER__MODEL__SERVED_NAME": "mine",
        "OUTRIDER__DRAFTERS__0__COUNT": "3",
        "OUTRIDER__DRAFTERS": "[{name: lab}]",
        "OUTRIDER__VERIFIERS__AUTOSCALING": "{max: 4}",
        "OUTRIDER__HTTP__KEEP_ALIVE_S": "",
        **KUBERNETES,
    }
    config = assign(Config(), from_environment(environment))
    assert (config.verifiers.threads, config.model.served_name, config.http.keep_alive_s) == (2, "mine", None)
    assert config.verifiers.autoscaling is not None
    assert [(group.name, group.count) for group in config.drafters] == [("lab", 3)]


def test_a_services_variables_of_kubernetes_are_not_read() -> None:
    assert from_environment(KUBERNETES) == []


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OUTRIDER__HTTP__PRT": "1"}, r"did you mean port\?\), found 'prt' \(in OUTRIDER__HTTP__PRT\)"),
        ({"OUTRIDER__HTP__PORT": "1"}, r"^OUTRIDER__HTP__PORT needs .*; did you mean http\?\), found 'htp'"),
        ({"OUTRIDER__PORT": "1"}, r"found 'port' \(in OUTRIDER__PORT\)"),
        ({"OUTRIDER__": "1"}, r"\(in OUTRIDER__\)"),
        ({"OUTRIDER__DRAFTERS__7__COUNT": "1"}, r"^OUTRIDER__DRAFTERS__7__COUNT needs a path to a field \(here: 0\)"),
        ({f"OUTRIDER__DRAFTERS__{'9' * 5000}__COUNT": "1"}, "needs a path to a field"),
        ({"OUTRIDER__" + "A__" * 9000: "1"}, r"^OUTRIDER__(A__)*(A|A_)?\.\.\. needs a path to a field"),
        ({"OUTRIDER__AUTH__KEYS_FILE": '"a\\0b"'}, "auth.keys_file needs a path without NUL"),
        ({"OUTRIDER__HTTP__PORT": "none"}, r"http.port needs an integer .*found 'none' \(in OUTRIDER__HTTP__PORT\)"),
        ({"OUTRIDER__HTTP__PORT": "["}, r"http.port needs a YAML value"),
        ({"OUTRIDER__VERIFIERS__PARTS": "3"}, r"parts is no setting any more"),
    ],
    ids=["field", "section", "top", "nothing", "place", "digits", "long", "nul", "value", "yaml", "gone"],
)
def test_a_variable_that_names_no_setting_is_refused_by_name(environment: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign(Config(), from_environment(environment))


def test_a_message_about_many_variables_is_short() -> None:
    many = {f"OUTRIDER__HTTP__NOBODY{i}{'X' * 300}": "1" for i in range(1_000)}
    with pytest.raises(
        ConfigError, match=r"found 'nobody0x+' \(in OUTRIDER__HTTP__NOBODY0X+, .* and 984 more\)"
    ) as told:
        assign(Config(), from_environment(many))
    assert len(str(told.value)) < 100_000, "16 of the 1,000, each with 16 names of where it may be from"
    assert str(told.value).endswith("\nand 984 more")


def test_settings_are_read_from_the_environment_in_one_place() -> None:
    found = [path.relative_to(ROOT) for path in product_files() if "from_environment(os.environ)" in path.read_text()]
    assert [str(path) for path in found] == ["cluster/options.py"]


def test_what_contradicts_only_before_the_last_assignment_is_no_mistake() -> None:
    variables = from_environment({"OUTRIDER__VERIFIERS__DEVICE": "cuda"})
    config = assign(Config(), [*variables, Assignment("--set", "verifiers.num_gpus", "1")])
    assert (config.verifiers.device, config.verifiers.num_gpus) == ("cuda", 1)


SET_PORT = Assignment("--set", "http.port", "1")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Assignment("--port", "http.port", "2"),
            "--port needs not to change http.port, which is 1 by --set, found '2'",
        ),
        (Assignment("--port", "http.port", "0x1"), None),
        (Assignment("--set", "http.port", "2"), None),
        (Assignment("--host", "http.host", '"::1"'), None),
    ],
    ids=["other", "same", "set twice", "another setting"],
)
def test_a_flag_and_set_may_not_contradict_each_other(other: Assignment, message: str | None) -> None:
    if message is None:
        refuse_contradictions([SET_PORT, other])
        return
    with pytest.raises(ConfigError) as caught:
        refuse_contradictions([SET_PORT, other])
    assert str(caught.value) == message


def test_a_section_behind_a_flag_of_it_is_refused() -> None:
    flag, section = Assignment("--drafter", "drafters.0.model", '"x"'), Assignment("--set", "drafters", "[]")
    refuse_contradictions([section, flag])
    with pytest.raises(ConfigError, match=r"^--set drafters needs not to change drafters\.0\.model"):
        refuse_contradictions([flag, section])


def test_text_of_a_flag_is_no_yaml() -> None:
    config = assign(parse_config("", "test"), [Assignment("MODEL", "model.target", '"no: null # \\"é"')])
    assert config.model.target == 'no: null # "é'
