"""Cost of the speculation tuner's choices: simulated against every fixed window, and against no drafts."""
