"""What is decided about a generation's rounds. Pure: whoever drives it passes the time and carries the effects out."""
