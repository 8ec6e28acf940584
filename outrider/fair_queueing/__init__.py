"""Queues and threads in which accounts take turns: who brings much waits for itself."""
