"""What both ends of a link remember of a generation, so that the messages between them are small."""
