"""What may cross the link, side by side on a real cluster with emulated links."""
