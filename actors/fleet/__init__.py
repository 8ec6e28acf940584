"""The fleet actor: which drafters run, and who drafts for whom."""
