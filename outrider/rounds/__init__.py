"""State machine of a generation's rounds. Pure: the coordinator passes the time in and carries the effects out."""
