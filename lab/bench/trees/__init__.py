"""Trees that grow where the drafter is sure, beside chains and fixed shapes of as many rows."""
