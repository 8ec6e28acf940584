"""Prompts of different kinds that the benches send."""

from transformers import PreTrainedTokenizerBase

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


def chat_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of a one-message chat."""
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return [token for token in ids if isinstance(token, int)]
