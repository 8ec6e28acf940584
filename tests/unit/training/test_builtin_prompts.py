from outrider.training.builtin_prompts import builtin_prompts


def test_prompts_are_many_distinct_complete_and_always_the_same() -> None:
    prompts = builtin_prompts()
    assert len(set(prompts)) == len(prompts) > 1500
    assert not any("{" in prompt or "|" in prompt or prompt != prompt.strip() for prompt in prompts)
    assert builtin_prompts() == prompts


def test_prompts_are_mixed() -> None:
    assert len({prompt.split()[0] for prompt in builtin_prompts()[:50]}) > 10
