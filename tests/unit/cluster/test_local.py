from dataclasses import replace

from cluster.application import first_steps
from cluster.local import sampling_line
from outrider.config.reading import parse_config
from outrider.config.schema import Config


def test_the_start_ends_with_what_to_try() -> None:
    page, line = first_steps(Config(), "http://127.0.0.1:8000")
    assert page == "Page: http://127.0.0.1:8000/"
    body = (
        '{"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Name the capital of France."}]}'
    )
    asked = "curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json'"
    assert line == f"Try: {asked} -d '{body}'"


def test_with_keys_the_line_takes_the_environments() -> None:
    config = parse_config('auth: {keys_file: /etc/keys.yaml}\nmodel: {served_name: "it\'s mine"}', "test")
    _, line = first_steps(config, "http://h:1")
    assert ' -H "Authorization: Bearer $OUTRIDER_API_KEY" ' in line
    assert """it'"'"'s mine""" in line


def test_the_start_tells_what_requests_are_sampled_by() -> None:
    config = Config()
    assert sampling_line(config) == (
        "Sampling: temperature 0.2, top_p 0.9 (the model's card), unless a request says otherwise"
    )
    neutral = replace(config, model=replace(config.model, generation_config="none"))
    assert sampling_line(neutral) == "Sampling: temperature 1, unless a request says otherwise"
