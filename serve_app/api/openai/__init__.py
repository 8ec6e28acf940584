"""OpenAI's request and response bodies as data. No HTTP, no Ray, no clock."""
