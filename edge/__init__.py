"""What a drafter runs around its engine: sessions, the engine's thread, and how its calls come to it."""
