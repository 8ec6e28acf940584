"""Tables and plots of what ``lab`` computes."""
