"""Hold the state of a generation at both ends of a link, so that the messages between them are small."""
