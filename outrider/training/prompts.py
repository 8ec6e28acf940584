"""A built-in set of varied instructions, to have a target write training data about.

Templates times subjects, over the kinds of work people give to chat models: explaining, writing, code, extraction,
arithmetic, rewriting, classifying. What a drafter must learn is how the target writes, so breadth matters more than
sense.
"""

import random
from collections.abc import Iterator
from itertools import product


def _items(text: str) -> list[str]:
    return text.split("|")


_SUBJECTS = _items(
    "photosynthesis|tides|black holes|the Silk Road|volcanoes|honey bees|the human heart|electric cars|chess|"
    "the Roman Empire|earthquakes|coffee|solar panels|whales|gravity|inflation|yoga|bicycles|dinosaurs|the internet|"
    "poetry|jazz|sourdough bread|composting|databases|neural networks|vaccines|penguins|the Berlin Wall|dreams|"
    "green tea|rivers|deserts|robots|friendship|time management|public speaking|hiking|cats|the deep sea|rainbows|"
    "magnets|batteries|compilers|elections|the printing press|opera|satellites|recycling|sleep|a balanced diet|"
    "marathon running|watercolours|steam trains|suspension bridges|lighthouses|medieval castles|spiders|rainforests|"
    "glaciers|Japan|Brazil|Kenya|Iceland|saving money|job interviews|remote work|leadership|a lost key|"
    "a talking river|an old map|a shy giant|a night market|the last library|a storm at sea|a clumsy inventor"
)
_ABOUT = _items(
    "Explain {} in simple terms.|What is special about {}?|Write a short story about {}.|Give me five facts about {}.|"
    "Write a four-line poem about {}.|Describe {} to a child.|List three misconceptions about {}.|"
    "How does {} affect daily life?|What are the advantages and disadvantages of {}?|"
    "Write an email to a colleague about {}.|What should a beginner know about {}?|Summarise {} in two sentences.|"
    "Write a quiz question about {} with its answer.|Write a dialogue between two friends about {}.|"
    "Suggest a title and a first sentence for an article about {}.|Give step-by-step advice concerning {}.|"
    "Make a table with three rows about {}.|What would a historian say about {}?"
)
_PROGRAMS = _items(
    "reverses a string|checks whether a number is prime|returns the nth Fibonacci number|sorts a list by insertion|"
    "counts the words of a text|finds the largest number of a list|checks for a palindrome|merges two sorted lists|"
    "computes the mean and median|removes duplicates and keeps the order|converts Celsius to Fahrenheit|"
    "counts the lines of a file|computes the greatest common divisor|flattens a nested list|counts vowels|"
    "does a binary search|lists all permutations|transposes a matrix|validates an email address|"
    "rotates a list by k places|parses a CSV line|groups words by length|checks for balanced brackets|"
    "implements a stack|implements a queue with two stacks|finds the common elements of two lists"
)
_CODE = _items(
    "Write a Python function that {}.|Write a JavaScript function that {}.|Write a C function that {}.|"
    "Write a Rust function that {}.|Explain step by step how a program {}.|Write unit tests for a function that {}."
)
_NAMES = ("Amara", "Jonas", "Mei", "Carlos", "Priya", "Olga", "Kofi", "Lucy")
_CITIES = ("Lisbon", "Nairobi", "Oslo", "Kyoto", "Toronto", "Lima")
_SENTENCES = _items(
    "the meeting was moved to Friday because the manager is ill|i dont think we can finish it before monday|"
    "The food was cold and the waiter ignored us, but the view was lovely.|"
    "Our new phone charges in twenty minutes and lasts two days.|She said that she had never seen snow before.|"
    "Please send me the invoice again, the first one had a wrong total.|"
    "The committee has decided, after long deliberation, to postpone the vote.|"
    "Rain is expected in the north, while the south stays dry and warm."
)
_REWRITE = _items(
    "Rewrite this politely: {}|Correct the grammar: {}|Translate into French: {}|Translate into Spanish: {}|"
    "Make this shorter: {}|Is this sentence positive, negative or neutral? {}|List the nouns in: {}|"
    "Turn this into a question: {}|Continue the text: {}"
)


def builtin_prompts() -> tuple[str, ...]:
    """Some 2,000 distinct instructions in a fixed, mixed order."""
    prompts = sorted({*_filled(_ABOUT, _SUBJECTS), *_filled(_CODE, _PROGRAMS), *_filled(_REWRITE, _SENTENCES)})
    prompts += [*_extractions(), *_sums()]
    random.Random(0).shuffle(prompts)  # noqa: S311  an order, not a secret
    return tuple(prompts)


def _filled(templates: list[str], fillings: list[str]) -> Iterator[str]:
    return (template.format(filling) for template, filling in product(templates, fillings))


def _extractions() -> Iterator[str]:
    for i, (name, city) in enumerate(product(_NAMES, _CITIES)):
        text = f"{name} moved to {city} in {1990 + 3 * i % 35} and works there as {('a baker', 'an engineer')[i % 2]}."
        yield f"Extract name, city, year and profession as JSON: {text}"
        yield f"{text} Where does {name} work, and since when?"


def _sums() -> Iterator[str]:
    for first, second in product(range(3, 60, 7), range(2, 40, 5)):
        yield f"What is {first} + {second}?"
        yield f"{_NAMES[first % 8]} has {first + second} apples and gives away {second}. How many are left?"
