"""The fleet at size: its own code over drafters that are plain objects, and coordinators that only call."""
