"""The fleet at scale: its own code over drafters that are plain objects, and coordinators that only send calls."""
