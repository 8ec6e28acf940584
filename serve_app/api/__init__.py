"""OpenAI's API over HTTP, on top of whatever makes the responses. Knows no Ray."""
