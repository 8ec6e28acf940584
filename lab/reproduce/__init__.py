"""The papers' tables and figures again: commands, results that are kept, and the page that shows them."""
