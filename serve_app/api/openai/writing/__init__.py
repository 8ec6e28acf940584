"""How answers of chats and completions are written: choices read, texts and usage as data."""
