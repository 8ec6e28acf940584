"""Prompts of many kinds: chat, code, other languages, arithmetic, lists, one word, a long context, odd tokens."""

CHATS = (
    "Explain how a rainbow forms.",
    "What is the capital of Japan?",
    "Write a Python function that reverses a string.",
    "List four fruits.",
    "Translate 'thank you' into French.",
    "What is 7 + 5?",
    "Write a haiku about rain.",
    "Rewrite politely: Close the door!",
    "Summarise: The meeting was moved to Friday because the room was being painted.",
    "Erkläre kurz, was ein Fahrrad ist.",
    "¿Cuál es la capital de España?",
    "请用一句话介绍北京。",
    "Repeat exactly: 🙂🙃🙂🙃",
    "Write an SQL query that counts users by country.",
    "Give the JSON object with keys name and age for Ada, 36.",
    "Continue: 1, 1, 2, 3, 5, 8,",
    "Hi",
    "Classify the sentiment of: The film was dull and far too long.",
    "Write a one-line shell command that lists all files by size.",
    "Tell me a story about a lighthouse keeper. " + "The sea was grey and the wind was cold. " * 30,
)
COMPLETIONS = (
    "Once upon a time there was",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "A" * 200,
)
