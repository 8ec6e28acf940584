"""Built-in, varied instructions from which a target writes training data.

They combine templates with subjects over what people ask of chat models: explaining, writing, code, extraction,
arithmetic, rewriting, classifying. A drafter learns how the target writes, so breadth matters more than sense.
"""

import random
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import yaml

_PARTS = Path(__file__).with_name("builtin_prompts.yaml")


def builtin_prompts() -> tuple[str, ...]:
    """Some 2,000 distinct instructions in a fixed, mixed order."""
    parts = yaml.safe_load(_PARTS.read_text(encoding="utf-8"))
    pairs = (("about", "subjects"), ("code", "programs"), ("rewrite", "sentences"))
    filled = (product(parts[templates], parts[fillings]) for templates, fillings in pairs)
    prompts = sorted({template.format(filling) for template, filling in chain.from_iterable(filled)})
    prompts += [*_extractions(parts["names"], parts["cities"]), *_sums(parts["names"])]
    random.Random(0).shuffle(prompts)  # noqa: S311  an order, not a secret
    return tuple(prompts)


def _extractions(names: list[str], cities: list[str]) -> Iterator[str]:
    for i, (name, city) in enumerate(product(names, cities)):
        text = f"{name} moved to {city} in {1990 + 3 * i % 35} and works there as {('a baker', 'an engineer')[i % 2]}."
        yield f"Extract name, city, year and profession as JSON: {text}"
        yield f"{text} Where does {name} work, and since when?"


def _sums(names: list[str]) -> Iterator[str]:
    for first, second in product(range(3, 60, 7), range(2, 40, 5)):
        yield f"What is {first} + {second}?"
        yield f"{names[first % 8]} has {first + second} apples and gives away {second}. How many are left?"
