"""Prompts of different kinds for the benches."""

import numpy as np

PROMPTS = (
    "Explain how a rainbow forms.",
    "What is the capital of France, and what is it known for?",
    "Write a Python function that checks whether a number is prime.",
    "List three differences between cats and dogs.",
    "Summarise in one sentence: The committee agreed to postpone the vote until all members had read the report.",
    "Translate 'good morning' into Spanish, French and German.",
    "Write a short poem about the sea.",
    "A train leaves at 9:15 and arrives at 11:40. How long is the journey?",
    "Give me a recipe for pancakes.",
    "Rewrite politely: Send me the file now.",
    "What are the benefits of regular exercise?",
    "Write an SQL query that counts the orders of each customer.",
    "Describe the water cycle to a child.",
    "Name five animals that live in the ocean.",
    "Complete the story: The old clock in the hall had not moved for years, until one night",
    "Classify the sentiment: I waited an hour and the food was cold.",
)

CONTINUATIONS = (
    "The three primary colours are",
    "Once upon a time, in a village by the river,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "Dear Sir or Madam,\n\nI am writing to",
    "1, 2, 4, 8, 16,",
)

_SUBJECTS = ("The council", "A young engineer", "The harbour", "Every second train", "The old library", "Our neighbour")
_VERBS = ("waited for", "wrote a report about", "slowly changed", "was known for", "lost", "depended on")
_OBJECTS = (
    "the northern bridge",
    "a box of letters",
    "the price of wheat",
    "two summers",
    "the weather",
    "a quiet road",
)
_ENDINGS = ("until the rain stopped", "although nobody had asked", "in the year of the flood", "with great care")


def document(rng: np.random.Generator, words: int) -> str:
    """Plain sentences of at least ``words`` words, hardly ever the same text twice."""
    text: list[str] = []
    while len(text) < words:
        parts = (parts[rng.integers(len(parts))] for parts in (_SUBJECTS, _VERBS, _OBJECTS, _ENDINGS))
        text += f"{' '.join(parts)}.".split()
    return " ".join(text)
