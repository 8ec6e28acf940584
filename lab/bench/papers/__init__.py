"""The measurements of the TSLT and DSSD papers, repeated on a small pair on one machine."""
